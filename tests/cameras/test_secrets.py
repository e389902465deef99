"""What is secret in an address is never shown."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hazardlens.cameras.secrets import is_address, redacted, scrubbed


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("rtsp://host/stream", "rtsp://host/stream"),
        ("RTSP://user:secret@host:554/a/b", "rtsp://host:554/a/b"),
        ("rtsp://user@host/a", "rtsp://host/a"),
        ("http://host/a?token=secret&size=2", "http://host/a?token=***&size=***"),
        ("http://host/a;key=secret", "http://host/a?key=***"),
        ("http://host/a#secret", "http://host/a"),
        ("rtsp://user:se/cr@et@host/a", "rtsp://host/a"),
        ("rtsp://user:se?cr=et@host/a", "rtsp://***"),
        ("rtsp://user:se#cret@host/a", "rtsp://***"),
        ("rtsp://host/a?mail=x@secret", "rtsp://***"),
        ("not an address", "***"),
    ],
)
def test_an_address_as_it_is_shown(address: str, shown: str) -> None:
    assert redacted(address) == shown


WORD = st.text(
    st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="@/?#;&=:"), min_size=6, max_size=12
)
ANY = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=6, max_size=12)


@given(user=WORD.map(lambda one: f"user{one}"), password=ANY.map(lambda one: f"pass{one}"), token=WORD)
def test_no_password_shows_whatever_it_is_made_of(user: str, password: str, token: str) -> None:
    address = f"rtsp://{user}:{password}@camera.example:554/live?token=T{token}T"
    shown = redacted(address)
    assert user not in shown
    assert password not in shown
    assert f"T{token}T" not in shown
    said = scrubbed(f"cannot open '{address}': {user} {password}", address)
    assert password not in said


def test_only_what_has_a_scheme_is_an_address() -> None:
    assert is_address("rtsp://a")
    assert not any(map(is_address, ("a.mp4", "/dev/video0", "C:\\a.mp4", "0")))
