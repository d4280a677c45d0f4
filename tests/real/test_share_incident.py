"""A failure that a colleague replays: pushed with all that it needs, pulled into another home, the first one gone."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from relive.incidents.incidents import Incidents
from relive.model.incident import FailureKind, Sighting
from relive.store.keyring import Keyring
from support.waiting import eventually

from .harness import PYTHON, SERVICES, Refused, Relive
from .test_replay import ask as ask_once
from .test_share import elsewhere
from .test_stubs import Answered, servers

__all__ = ["elsewhere", "servers"]

UVICORN = (str(PYTHON), "-m", "uvicorn", "--app-dir", str(SERVICES), "answered:app", "--port")


def trust(relive: Relive, other: Relive) -> None:
    place = relive.home / "keys" / "trusted"
    place.mkdir(parents=True, exist_ok=True)
    (place / "friend.pub").write_text(Keyring(other.home / "keys").public_key.hex())


def fail(relive: Relive, servers: dict[str, int]) -> dict[str, object]:
    """A service that both recorders see fails in a request that asks another; the incident."""
    service = Answered(relive, servers, "--recorder", program=UVICORN)
    service.ask("/httpx/3")
    relive("commit", "answered")
    service.ask("/line/3")
    assert ask_once(service.port, "GET", "/httpx/4!")[0] == 500
    (incident,) = eventually(relive.incidents, "the incident")
    return incident


def replay(relive: Relive, number: int) -> str:
    done = relive.say("replay", str(number))
    result = json.loads(done.stdout)
    assert done.returncode == 0, json.dumps(result, indent=1)
    return result["runs"][0]["verdict"]["kind"]


def refuse_what_was_changed(relive: Relive, remote: Path, commit: str) -> None:
    """A changed byte of the case file, or of the record that names it, has nothing taken in."""
    (case,) = (path for path in remote.glob("cases/*/*/*") if path.is_file())
    (record,) = (remote / "incidents" / commit[:2] / commit[2:]).iterdir()
    for place, codes in ((case, {"object-corrupt"}), (record, {"object-corrupt", "signature-invalid"})):
        whole = place.read_bytes()
        place.write_bytes(whole[:90] + bytes([whole[90] ^ 1]) + whole[91:])
        with pytest.raises(Refused) as caught:
            relive("pull", f"file://{remote}", commit)
        assert caught.value.code in codes
        assert [one["number"] for one in relive("incidents")] == [1]
        place.write_bytes(whole)


def test_an_incident_is_replayed_in_another_home_when_the_first_is_gone(
    relive: Relive, elsewhere: Relive, servers: dict[str, int], tmp_path: Path
) -> None:
    incident = fail(relive, servers)
    story = relive("show", "1")
    url = f"file://{tmp_path}/remote"
    pushed = relive("push", url, "incident/1")
    assert pushed["incidents"] == pushed["sent_incidents"] == [1]
    assert relive("push", url, "incident/1")["sent_incidents"] == []
    trust(elsewhere, relive)
    archive = tmp_path / "one.relive"
    assert relive("export", "incident/1", str(archive))["incidents"] == [1]
    relive("stop", "answered")
    relive.close()
    shutil.rmtree(relive.home)
    relive.home.mkdir()

    # The number is taken here.
    other = Sighting(kind=FailureKind.EXIT, fingerprint="e", summary="another", seen_wall_ns=1)
    Incidents(elsewhere.settings.incidents).add(
        "other", "L1", other, before=None, at=None, log_end=0, log_tail=[]
    )
    refuse_what_was_changed(elsewhere, tmp_path / "remote", pushed["id"])
    assert elsewhere("pull", "--no-incidents", url, pushed["id"])["incidents"] == []
    pulled = elsewhere("pull", url, pushed["id"][:12])
    assert pulled["incidents"] == pulled["new_incidents"] == [2]
    again = elsewhere("pull", url, pushed["id"])
    assert (again["incidents"], again["new_incidents"]) == ([2], [])

    told = elsewhere("show", "2")
    assert told["sighting"] == story["sighting"]
    assert told["timeline"]["rows"] == story["timeline"]["rows"]
    assert told["origin"]["number"] == incident["number"] == 1
    assert elsewhere("incidents", "answered")[0]["number"] == 2
    assert replay(elsewhere, 2) == "reproduced"
    elsewhere("verify", "--data")
    imported = elsewhere("import", str(archive))
    assert (imported["id"], imported["incidents"], imported["new_incidents"]) == (pushed["id"], [2], [])
