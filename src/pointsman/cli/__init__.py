"""The command line: reads options, calls a composition root, prints."""
