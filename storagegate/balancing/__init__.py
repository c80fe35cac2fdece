"""Which of a service's instances a call goes to, which of them are well, and how a call gets there."""
