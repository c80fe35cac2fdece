"""Users, groups, roles and managed policies of accounts, and the rights that they give."""
