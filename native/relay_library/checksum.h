/* CRC-32 as zlib has it, and BLAKE2b with 32 bytes: what a recording's records and cut bodies are proved by. */
#ifndef RELAY_CHECKSUM_H
#define RELAY_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

/* zlib's crc32(): begin with 0, go on with what came out. Folded by carry-less multiplication where the processor has it. */
uint32_t crc32_of(uint32_t crc, const uint8_t *data, size_t size);

#define BLAKE2B_BYTES 32
struct blake2b {
    uint64_t state[8];
    uint64_t count;
    uint8_t block[128];
    size_t filled;
};
/* RFC 7693 without a key, the digest BLAKE2B_BYTES long. */
void blake2b_begin(struct blake2b *hash);
void blake2b_take(struct blake2b *hash, const uint8_t *data, size_t size);
void blake2b_end(struct blake2b *hash, uint8_t digest[BLAKE2B_BYTES]);

#endif
