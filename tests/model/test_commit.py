"""Manifests: what is written is what was meant, in one form only."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from pydantic import ValidationError

from relive.model.commit import MANIFEST_VERSION, FileEntry, ImageFile, Manifest
from relive.store.manifests import canonical

from .strategies import manifests


@given(manifests)
def test_a_manifest_comes_back_from_its_canonical_form(manifest):
    """Of one that names a listing all but the layers, which lie elsewhere."""
    kept = manifest.model_copy(update={"layers": []}) if manifest.version == MANIFEST_VERSION else manifest
    assert Manifest.model_validate_json(canonical(manifest)) == kept


@given(manifests)
def test_the_canonical_form_does_not_depend_on_the_order_of_fields(manifest):
    """GIVEN the same manifest read from JSON whose keys stand in another order, THEN its id stays."""
    turned = json.dumps(turn_around(json.loads(canonical(manifest))))
    assert canonical(Manifest.model_validate_json(turned)) == canonical(manifest)


def turn_around(value: object) -> object:
    if isinstance(value, dict):
        return {key: turn_around(value[key]) for key in reversed(value)}
    if isinstance(value, list):
        return [turn_around(item) for item in value]
    return value


@given(manifests)
def test_the_canonical_form_is_utf_8_json_with_sorted_keys_and_no_blanks(manifest):
    data = canonical(manifest)
    again = json.dumps(
        json.loads(data.decode("utf-8")), sort_keys=True, separators=(",", ":"), ensure_ascii=False
    )
    assert again.encode() == data


@given(manifests)
def test_an_unknown_field_is_refused_rather_than_lost(manifest):
    """It would be gone when the commit is pushed on, and its id would not fit any more."""
    value = json.loads(canonical(manifest))
    value["sealed_by"] = "a later Relive"
    with pytest.raises(ValidationError):
        Manifest.model_validate_json(json.dumps(value))


def test_an_unknown_field_of_a_file_is_refused():
    with pytest.raises(ValidationError):
        FileEntry.model_validate({"path": "a", "kind": "file", "compressed": True})


@pytest.mark.parametrize("name", ["", "ab", "../" * 20, "A" * 64, "a" * 65, "a" * 64 + "\n", "/etc/passwd"])
def test_an_object_has_a_name_that_is_safe_in_a_path(name):
    with pytest.raises(ValidationError):
        ImageFile(name="pages-1.img", size=1, object=name)


def test_a_manifest_does_not_change():
    entry = FileEntry(path="a", kind="file")
    with pytest.raises(ValidationError):
        entry.path = "b"
