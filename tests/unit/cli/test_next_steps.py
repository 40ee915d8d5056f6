"""What commands tell as the next step can be typed as it stands."""

import pytest

from pointsman.cli.call import Access
from pointsman.cli.gateway_options import GatewayOptions


@pytest.mark.parametrize(
    ("account", "said"),
    [("default", "pointsman policy enforce"), ("team", "pointsman policy enforce --account team")],
)
def test_a_next_step_is_about_the_same_account(account: str, said: str) -> None:
    options = GatewayOptions(
        dict.fromkeys(("gateway_url", "token_file", "gateway_ca", "gateway_cert", "gateway_key")),
        from_environment=False,
    )
    assert Access(options, account).command("policy enforce") == said
