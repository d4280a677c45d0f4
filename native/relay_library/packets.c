/* Segments out of packets: see packets.h. Every index is checked against the size of the block. */
#include "packets.h"

#include <linux/if_packet.h>
#include <net/if_arp.h>
#include <string.h>

enum { HEAD_BYTES = 36, LINK_AT = 48, LINK_BYTES = 11, TCP_LEAST = 20, V6_BYTES = 40 };

static uint32_t number(const uint8_t *at, int bytes)
{
    uint32_t value = 0;
    for (int i = 0; i < bytes; i++)
        value = value << 8 | at[i];
    return value;
}

/* The packet, from its network header on: `kept` of `sent` bytes. */
static int read_packet(const uint8_t *packet, size_t kept, size_t sent, uint16_t port, struct segment *segment)
{
    size_t head, whole;
    struct ends *ends = &segment->ends;
    const uint8_t *origin, *goal;
    if (kept < 20)
        return 0;
    memset(ends, 0, sizeof *ends);
    if (packet[0] >> 4 == 4) {
        head = (packet[0] & 15u) * 4;
        whole = number(packet + 2, 2);
        origin = packet + 12, goal = packet + 16, ends->address_bytes = 4;
    } else {
        if (kept < V6_BYTES)
            return 0;
        head = V6_BYTES;
        whole = number(packet + 4, 2);
        whole += whole ? V6_BYTES : 0;
        origin = packet + 8, goal = packet + 24, ends->address_bytes = 16;
    }
    whole = whole ? whole : sent; /* 0: larger than 64 KiB */
    if (head + 14 > kept)
        return 0;
    const uint8_t *tcp = packet + head;
    uint16_t source = (uint16_t)number(tcp, 2), target = (uint16_t)number(tcp + 2, 2);
    size_t data_at = head + (tcp[12] >> 4) * 4u, end = whole < kept ? whole : kept;
    if (data_at > whole || data_at < head + TCP_LEAST || (port != target && port != source))
        return 0;
    segment->from_client = target == port;
    memcpy(ends->client, segment->from_client ? origin : goal, ends->address_bytes);
    memcpy(ends->service, segment->from_client ? goal : origin, ends->address_bytes);
    ends->client_port = segment->from_client ? source : target;
    segment->sequence = number(tcp + 4, 4), segment->acknowledged = number(tcp + 8, 4), segment->flags = tcp[13];
    segment->data = packet + (data_at < end ? data_at : end), segment->size = data_at < end ? end - data_at : 0;
    size_t had = kept > data_at ? kept : data_at;
    segment->lacks = whole > had ? whole - had : 0;
    return 1;
}

int next_segment(const uint8_t *block, size_t size, uint16_t port, struct place *place, struct segment *segment)
{
    struct tpacket3_hdr head;
    struct sockaddr_ll link;
    size_t at = place->at, link_room = size > LINK_AT ? size - LINK_AT : 0;
    if (!place->left || at > size || link_room < LINK_BYTES || at > link_room - LINK_BYTES) {
        place->left = 0;
        return 0;
    }
    memcpy(&head, block + at, HEAD_BYTES); /* as much as is always there; what is behind it is not used */
    memset(&link, 0, sizeof link);
    memcpy(&link, block + at + LINK_AT, LINK_BYTES);
    place->at += head.tp_next_offset;
    place->left = head.tp_next_offset ? place->left - 1 : 0;
    segment->wall_ns = head.tp_sec * 1000000000ull + head.tp_nsec;
    if (head.tp_net > size - at || head.tp_snaplen > size - at - head.tp_net)
        return 0;
    if (!read_packet(block + at + head.tp_net, head.tp_snaplen, head.tp_len, port, segment))
        return 0;
    /* On loopback only what comes in is taken, whoever sends it. */
    return link.sll_hatype == ARPHRD_LOOPBACK || segment->from_client != (link.sll_pkttype == PACKET_OUTGOING);
}

/* How many bytes the next packet takes, as far as the block has them. */
static size_t extent(const uint8_t *packet, size_t room)
{
    struct tpacket3_hdr head;
    size_t bytes = LINK_AT + LINK_BYTES;
    if (room < bytes)
        return room;
    memcpy(&head, packet, HEAD_BYTES);
    size_t ends_at = (size_t)head.tp_net + head.tp_snaplen;
    bytes = ends_at > bytes ? ends_at : bytes;
    return bytes < room ? bytes : room;
}

int next_segment_in_ring(const struct in_ring *ring, const uint8_t *block, size_t size, uint8_t *room, uint16_t port,
                         struct place *place, struct segment *segment)
{
    const uint8_t *packet = place->at < size ? block + place->at : block + size;
    size_t bytes = extent(packet, (size_t)(block + size - packet));
    memcpy(room, packet, bytes);
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    if (__atomic_load_n(ring->released, __ATOMIC_ACQUIRE) > ring->number)
        return -1; /* whatever was copied */
    struct place in_copy = {0, place->left};
    int is_one = next_segment(room, bytes, port, &in_copy, segment);
    place->at += in_copy.at, place->left = in_copy.left;
    return is_one;
}
