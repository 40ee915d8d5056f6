"""What happened, told to the operator: never a body, a header value or a key."""
