"""Which of a service's instances gets a call, which of them are well, and the way to them."""
