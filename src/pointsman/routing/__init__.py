"""Pure decisions: which dialect a request speaks, which candidate answers it, what is sent there."""
