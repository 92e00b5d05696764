"""The address of a driver, on routes of this machine."""

import socket

import psutil
import pytest

from jobs.driver import ENCRYPTION, SECRET, driver_host, network_settings
from streaming_core.errors import BadInput


@pytest.mark.parametrize("master", ["local", "local[*]", "local[2,4]", "spark://127.0.0.1:7077", "spark://localhost"])
def test_driver_of_a_master_on_this_machine_has_loopback(master):
    expected = {"spark.driver.host": "localhost", "spark.driver.bindAddress": "127.0.0.1"}
    assert network_settings(master, {}) == expected


@pytest.mark.parametrize(
    "master", ["spark://{}:7077", "spark://{0}:7077,{0}:7078", "k8s://https://{}:6443", "k8s://{}"]
)
def test_driver_has_the_address_of_its_route_to_the_master(master):
    own = [
        address.address
        for name in psutil.net_if_addrs().values()
        for address in name
        if address.family == socket.AF_INET
    ]
    addresses = [address for address in own if not address.startswith("127.")]
    if not addresses:
        pytest.skip("this machine has no network")
    for address in addresses:
        expected = {"spark.driver.host": address, "spark.driver.bindAddress": address}
        assert network_settings(master.format(address), {}) == expected


def test_driver_on_yarn_has_the_name_of_this_machine():
    assert driver_host("yarn") == socket.getfqdn()


def test_settings_of_the_connection_come_first():
    mine = {"spark.driver.host": "driver.example", "spark.driver.bindAddress": "0.0.0.0", "spark.cores.max": "2"}
    assert network_settings("spark://nowhere.invalid:7077", mine) == mine


def test_secret_turns_on_encryption():
    mine = {SECRET: "hush"}
    assert ENCRYPTION.items() < network_settings("local", mine).items()
    assert (
        network_settings("local", mine | {"spark.io.encryption.enabled": "false"})["spark.io.encryption.enabled"]
        == "false"
    )


def test_master_without_an_address_is_refused():
    with pytest.raises(BadInput, match=r"^no route to the Spark master on nowhere\.invalid: "):
        driver_host("spark://nowhere.invalid:7077")
