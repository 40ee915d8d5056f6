"""The control plane: provider records, routes and tokens, and who may see and change them."""
