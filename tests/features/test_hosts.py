import time

import pyarrow as pa

from features.common.hosts import called_by, first_fit, hosts_of


def test_an_origin_is_of_the_host_that_it_names() -> None:
    origins = {
        "EOS.cern.ch": "eos.cern.ch",
        "eos.cern.ch:1094": "eos.cern.ch",
        "root://u:1@eos.cern.ch:1094//eos/x@y": "eos.cern.ch",
        "T1_ES_PIC_Disk": "t1_es_pic_disk",
        "[2001:DB8::17]:1094": "2001:db8::17",
        "root://[2001:db8::17]//store/a:b": "2001:db8::17",
        "[2001": "[2001",
        "": "",
    }
    assert hosts_of(pa.array([*origins])).to_pylist() == list(origins.values())
    assert first_fit(pa.array([*origins]), [["*.ch"], ["2001:DB8:*"]]).tolist() == [0, 0, 0, 2, 1, 1, 2, 2]
    assert first_fit(pa.array(["b", "a.fr", None, "a.fr"]).slice(1), [["*.fr"]]).tolist() == [0, 1, 0]
    assert first_fit(pa.array([], pa.string()), [["*.fr"]]).tolist() == []


def test_a_host_header_of_any_length_is_judged_at_once() -> None:
    is_ours, began = called_by(["xc.example.org"]), time.monotonic()
    headers = [
        b"XC.example.org.:80",
        b"[::1]:80",
        b"192.0.2.7",
        b"[192.0.2.7]",
        b"evil.org",
        b"[" + b":" * 10**5,
    ]
    assert list(map(is_ours, headers)) == [True, True, True, False, False, False]
    assert time.monotonic() - began < 5
