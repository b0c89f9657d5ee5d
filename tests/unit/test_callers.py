"""Who a request is counted to where it has no key."""

from __future__ import annotations

import pytest

from hunyuan_ocr.api.callers import network


@pytest.mark.parametrize(
    ("host", "tenant"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff::1", "2001:db8:1:2::/64"),
        ("2001:db8:1:3::1", "2001:db8:1:3::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::1", "::/64"),
        ("unknown", "unknown"),
    ],
)
def test_one_who_changes_addresses_within_a_network_stays_one(host: str, tenant: str) -> None:
    assert network(host) == tenant
