import struct

import pytest

from relive.errors import ObjectCorrupt
from relive.images import criu_images_pb2 as pb
from relive.inspection.queues import read_queues

HEAD = struct.pack("<II", 0x54564319, 1)


def entry(message, payload: bytes = b"") -> bytes:
    body = message.SerializeToString()
    return struct.pack("<I", len(body)) + body + payload


def test_bytes_are_counted_by_what_they_wait_for():
    tcp = pb.TcpStreamEntry(
        inq_len=3, inq_seq=0, outq_len=4, outq_seq=0, opt_mask=0, snd_wscale=0, mss_clamp=0
    )
    found = read_queues(
        {
            "pipes-data.img": HEAD
            + entry(pb.PipeDataEntry(pipe_id=7, bytes=5), b"12345")
            + entry(pb.PipeDataEntry(pipe_id=8, bytes=0)),
            "sk-queues.img": HEAD + 2 * entry(pb.SkPacketEntry(id_for=9, length=2), b"ab"),
            "tcp-stream-1f.img": HEAD + entry(tcp, b"inqoutq"),
            "tcp-stream-no.img": HEAD + entry(tcp, b"inqoutq"),
        }
    )
    assert (found.pipes, found.packets, found.tcp) == ({7: 5, 8: 0}, {9: 4}, {0x1F: (3, 4)})


@pytest.mark.parametrize("name", ["pipes-data.img", "sk-queues.img"])
def test_an_image_that_is_cut_anywhere_is_refused(name):
    message = (
        pb.PipeDataEntry(pipe_id=7, bytes=5) if "pipes" in name else pb.SkPacketEntry(id_for=9, length=5)
    )
    whole = HEAD + entry(message, b"12345")
    assert read_queues({name: whole})
    for end in range(len(HEAD) + 1, len(whole)):
        with pytest.raises(ObjectCorrupt, match="damaged"):
            read_queues({name: whole[:end]})
