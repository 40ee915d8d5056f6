"""What the operator wrote, checked: route files and settings. Every problem is found in one pass."""
