import os
import socket
import struct

from relive.images import criu_images_pb2 as pb
from relive.inspection.address_space import MappedFiles
from relive.inspection.descriptors import CommittedFiles
from relive.inspection.queues import Queues
from relive.inspection.words import descriptor_words


def fd(number: int, file: int, kind: int = 1) -> pb.FdinfoEntry:
    return pb.FdinfoEntry(id=file, flags=0, type=kind, fd=number)


def files(*entries: pb.FileEntry, tables=(), **queues) -> CommittedFiles:
    waiting = Queues(queues.get("pipes", {}), queues.get("packets", {}), queues.get("tcp", {}))
    inode = pb.MemfdInodeEntry(name="scratch", size=9, shmid=1, inode_id=4)
    return CommittedFiles(entries, MappedFiles.of(entries, [inode]), waiting, tables)


def words(made: CommittedFiles, pid: int = 1) -> list[str]:
    table = next(table for owner, table in made.tables if owner == pid)
    return [descriptor_words(one) for one in made.of_process(pid, table)]


def test_a_file_has_its_offset_and_who_shares_it():
    reg = pb.RegFileEntry(id=3, flags=os.O_WRONLY | os.O_APPEND, pos=10, name="/a", size=12)
    made = files(pb.FileEntry(type=1, id=3, reg=reg), tables=[(1, [fd(5, 3)]), (2, [fd(6, 3)])])
    assert words(made) == ["file  /a  write, append  at 10 of 12  shared with 2:6"]


def test_a_pipe_knows_its_other_ends_and_what_nobody_has_read():
    ends = [
        pb.FileEntry(type=2, id=number, pipe=pb.PipeEntry(id=number, pipe_id=9, flags=flags))
        for number, flags in ((1, os.O_RDONLY), (2, os.O_WRONLY))
    ]
    made = files(*ends, tables=[(1, [fd(3, 1)]), (2, [fd(4, 2)])], pipes={9: 5})
    assert words(made) == ["pipe  pipe:[9]  -> 2:4  read  5 B unread"]
    assert words(files(ends[0], tables=[(1, [fd(3, 1)])])) == ["pipe  pipe:[9]  -> outside  read"]


def test_a_connection_has_both_addresses_and_both_queues():
    (local,) = struct.unpack("<I", socket.inet_aton("127.0.0.1"))
    sock = pb.InetSkEntry(
        **{
            "id": 1,
            "ino": 77,
            "family": 2,
            "type": 1,
            "proto": 6,
            "state": 1,
            "src_port": 80,
            "dst_port": 99,
        },
        src_addr=[local],
        dst_addr=[local],
    )
    made = files(pb.FileEntry(type=4, id=1, isk=sock), tables=[(1, [fd(3, 1)])], tcp={77: (3, 4)})
    assert words(made) == ["tcp socket  127.0.0.1:80  -> 127.0.0.1:99  established  3 B unread  4 B unsent"]


def test_unix_sockets_name_their_peer_by_process_and_descriptor():
    pair = [
        pb.FileEntry(
            type=5,
            id=number,
            usk=pb.UnixSkEntry(
                id=number, ino=number, type=1, state=1, uflags=0, peer=peer, name=b"\0abstract"
            ),
        )
        for number, peer in ((1, 2), (2, 1))
    ]
    made = files(*pair, tables=[(1, [fd(3, 1)]), (2, [fd(4, 2)])], packets={1: 6})
    assert words(made) == ["unix stream socket  @abstract  -> 2:4  established  6 B unread"]


def test_what_else_there_is():
    made = files(
        pb.FileEntry(type=18, id=1, memfd=pb.MemfdEntry(id=1, flags=2, pos=8, inode_id=4)),
        pb.FileEntry(type=6, id=2, efd=pb.EventfdEntry(id=2, flags=0, counter=3)),
        pb.FileEntry(
            type=7,
            id=3,
            epfd=pb.EventpollEntry(id=3, flags=0, tfd=[pb.EventpollTarget(id=3, tfd=9, events=1, data=0)]),
        ),
        tables=[(1, [fd(0, 1), fd(1, 2), fd(2, 3), fd(3, 99, 8), fd(4, 98, 77)])],
    )
    assert words(made) == [
        "memfd  memfd:scratch  read-write  at 8",
        "eventfd  counter 3",
        "epoll  watches 9",
        "inotify",
        "unknown",
    ]
