"""
Which text is an email address, and which addresses are the same::

    address = local "@" label 1*( "." label )
    local   = atom *( "." atom )

An atom is of RFC 5322 section 3.2.3, a label of letters, digits and hyphens, and either may have
letters outside of ASCII (RFC 6531). Quoted local parts, comments and addresses in brackets are
legal mail and never somebody's login: they are refused.
"""

import re
import unicodedata

_OCTETS = 254
"""The longest path of SMTP is 256 with its brackets (RFC 5321 section 4.5.3.1.3)."""

_LOCAL_OCTETS = 64
_LABEL_OCTETS = 63

# No repetition of a repetition: the time is that of reading the text once.
_ATOM = re.compile(r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~\x80-\U0010ffff-]+")
_LABEL = re.compile(r"[A-Za-z0-9\x80-\U0010ffff-]+")


def isEmail(text: object) -> bool:
    """Tell whether a value is an email address."""
    # A character has an octet at least; encoding is for what may still fit.
    if not isinstance(text, str) or len(text) > _OCTETS or not text.isprintable():
        return False
    local, at, domain = text.rpartition("@")
    labels = domain.split(".")
    return (
        bool(at)
        and len(text.encode()) <= _OCTETS
        and len(local.encode()) <= _LOCAL_OCTETS
        and all(_ATOM.fullmatch(atom) for atom in local.split("."))
        and len(labels) > 1
        and all(_isLabel(label) for label in labels)
        # An address of IPv4 is no domain.
        and not labels[-1].isdigit()
    )


def fold(text: str) -> str:
    """Give what is the same for texts that differ in case only, or in how accents are written."""
    # Composed in the end: an accent is a part of its letter, and "e" is not found in "é".
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", text).casefold())


def _isLabel(label: str) -> bool:
    return (
        _LABEL.fullmatch(label) is not None
        and label[0] != "-"
        and label[-1] != "-"
        and len(label.encode()) <= _LABEL_OCTETS
    )
