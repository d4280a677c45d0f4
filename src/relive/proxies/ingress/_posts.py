"""What the relay posts of the recording, and of requests that an agent hears of: told on."""

from __future__ import annotations

from relive.proxies.ingress._traffic import Traffic
from relive.proxies.relay import Post, PostKind
from relive.proxies.relay_writer import RelayWriter

__all__ = ["tell"]


def tell(post: Post, traffic: Traffic, writer: RelayWriter) -> None:
    """Tell whom a post is for; not of connections, which are their carrier's."""
    if post.kind is PostKind.ANSWERED:
        traffic.publish_answered(post.number, post.value, post.seconds, post.wall_ns, post.seq)
    elif post.kind is PostKind.BROKEN:
        how = "reset" if post.value else "closed"
        traffic.publish_broken(post.number, how, post.extra, post.seconds, post.wall_ns)
    elif post.kind is PostKind.UNANSWERED:
        traffic.publish_unanswered(post.number, post.seconds, post.wall_ns)
    elif post.kind is PostKind.RECORDING_OFF:
        writer.switched_off(post.extra)
    elif post.kind is PostKind.RECORDING_ON:
        writer.switched_on(post.extra)
    elif post.kind is PostKind.SEGMENT_BEGUN:
        writer.segment_begun()
