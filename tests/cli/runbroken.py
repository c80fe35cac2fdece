"""A module that lacks another one."""

import nothereatall  # noqa: F401
