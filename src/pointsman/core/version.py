"""The version of this program, for those who must not import the whole of it."""

VERSION = "0.1.0"
