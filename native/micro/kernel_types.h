/* Where the running kernel has what in its structures, by its own account of its types (BTF, /sys/kernel/btf/vmlinux;
 * Documentation/bpf/btf.rst). Nothing is assumed of a version: what is not found by its name is not read. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct place {
	uint32_t offset, size; /* [bytes] */
	uint8_t mask;	       /* of a bit field: of its byte; else 0 */
};

/* False: the kernel gives no such account, or one that cannot be read. */
bool read_kernel_types(void);
void forget_kernel_types(void);

/* "member" or "member.member" of a structure; those without a name are looked through. False: there is none, or there are two structures of that
 * name that differ in it. */
bool find_place(const char *structure, const char *path, struct place *found);

/* [bytes]; 0: it is not there. */
uint32_t size_of_structure(const char *structure);
