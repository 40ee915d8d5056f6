"""The control plane: provider records, routes and tokens, and who may see and change them."""

import pointsman.rpc  # noqa: F401  # before any module here loads grpc
