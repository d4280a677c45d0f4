/* See kernel_types.h. */
#define _GNU_SOURCE
#include "kernel_types.h"

#include <fcntl.h>
#include <linux/btf.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
	ACCOUNT_MOST = 64 << 20, /* [bytes] */
	DEPTH_MOST = 16, /* of types within types */
	ALIKE_MOST = 8,
};

static unsigned char *account;
static const char *names;
static uint32_t names_size, *types, type_count; /* offset in the account, by number of the type */
static const char *asked; /* the structure that was asked for last */
static const struct btf_type *alike[ALIKE_MOST]; /* those of its name */
static int alike_count;

/* What follows a type; linux/btf.h. -1: unknown. */
static int64_t size_behind(const struct btf_type *t)
{
	const uint32_t count = BTF_INFO_VLEN(t->info);

	switch (BTF_INFO_KIND(t->info)) {
	case BTF_KIND_INT:
	case BTF_KIND_VAR:
	case 17: /* BTF_KIND_DECL_TAG */
		return 4;
	case BTF_KIND_ARRAY:
		return sizeof(struct btf_array);
	case BTF_KIND_STRUCT:
	case BTF_KIND_UNION:
	case BTF_KIND_DATASEC:
	case 19: /* BTF_KIND_ENUM64 */
		return 12LL * count;
	case BTF_KIND_ENUM:
	case BTF_KIND_FUNC_PROTO:
		return 8LL * count;
	case BTF_KIND_PTR:
	case BTF_KIND_FWD:
	case BTF_KIND_TYPEDEF:
	case BTF_KIND_VOLATILE:
	case BTF_KIND_CONST:
	case BTF_KIND_RESTRICT:
	case BTF_KIND_FUNC:
	case 16: /* BTF_KIND_FLOAT */
	case 18: /* BTF_KIND_TYPE_TAG */
		return 0;
	default:
		return -1;
	}
}

static const struct btf_type *type_of(uint32_t number)
{
	return number && number < type_count ? (const struct btf_type *)(const void *)(account + types[number]) : NULL;
}

static const char *name_at(uint32_t offset)
{
	return offset < names_size ? names + offset : "";
}

static bool index_types(const struct btf_header *head)
{
	uint32_t at = head->hdr_len + head->type_off;
	const uint32_t types_end = at + head->type_len;

	types = malloc((head->type_len / sizeof(struct btf_type) + 2) * sizeof *types);
	if (!types)
		return false;
	for (type_count = 1; at + sizeof(struct btf_type) <= types_end; type_count++) {
		const int64_t behind = size_behind((const struct btf_type *)(const void *)(account + at));

		if (behind < 0)
			return false;
		types[type_count] = at;
		at += (uint32_t)sizeof(struct btf_type) + (uint32_t)behind;
	}
	return at == types_end;
}

bool read_kernel_types(void)
{
	const int fd = open("/sys/kernel/btf/vmlinux", O_RDONLY | O_CLOEXEC);
	const struct btf_header *head;
	size_t size = 0, room = 0;
	ssize_t got = 1;

	while (fd >= 0 && got > 0 && size < ACCOUNT_MOST) {
		if (size == room) {
			unsigned char *more = realloc(account, room += 8 << 20);

			if (!more)
				break;
			account = more;
		}
		got = read(fd, account + size, room - size);
		size += got > 0 ? (size_t)got : 0;
	}
	if (fd >= 0)
		close(fd);
	head = (const struct btf_header *)(const void *)account;
	if (got != 0 || size < sizeof *head || head->magic != BTF_MAGIC || head->version != BTF_VERSION ||
	    (uint64_t)head->hdr_len + head->str_off + head->str_len > size || (uint64_t)head->hdr_len + head->type_off + head->type_len > size ||
	    !head->str_len || account[head->hdr_len + head->str_off + head->str_len - 1]) {
		forget_kernel_types();
		return false;
	}
	names = (const char *)account + head->hdr_len + head->str_off;
	names_size = head->str_len;
	if (index_types(head))
		return true;
	forget_kernel_types();
	return false;
}

void forget_kernel_types(void)
{
	free(account);
	free(types);
	account = NULL;
	asked = NULL;
	types = NULL;
	type_count = names_size = 0;
}

/* Without names for types and qualifiers. */
static const struct btf_type *plain_type(uint32_t number)
{
	const struct btf_type *t = type_of(number);

	for (int depth = 0; t && depth < DEPTH_MOST; depth++) {
		switch (BTF_INFO_KIND(t->info)) {
		case BTF_KIND_TYPEDEF:
		case BTF_KIND_VOLATILE:
		case BTF_KIND_CONST:
		case BTF_KIND_RESTRICT:
		case 18: /* BTF_KIND_TYPE_TAG */
			t = type_of(t->type);
			continue;
		default:
			return t;
		}
	}
	return NULL;
}

static uint32_t size_of_type(uint32_t number)
{
	uint32_t times = 1;

	for (int depth = 0; depth < DEPTH_MOST; depth++) {
		const struct btf_type *t = plain_type(number);
		const struct btf_array *array = (const struct btf_array *)(const void *)(t + 1);

		if (!t)
			return 0;
		switch (BTF_INFO_KIND(t->info)) {
		case BTF_KIND_PTR:
			return 8 * times;
		case BTF_KIND_ARRAY:
			times *= array->nelems;
			number = array->type;
			continue;
		case BTF_KIND_INT:
		case BTF_KIND_STRUCT:
		case BTF_KIND_UNION:
		case BTF_KIND_ENUM:
		case 19: /* BTF_KIND_ENUM64 */
			return t->size * times;
		default:
			return 0;
		}
	}
	return 0;
}

static bool is_compound(const struct btf_type *t)
{
	return t && (BTF_INFO_KIND(t->info) == BTF_KIND_STRUCT || BTF_INFO_KIND(t->info) == BTF_KIND_UNION);
}

/* The rest of a path in a structure or union; found->offset is where that begins. */
static bool find_in(const struct btf_type *t, const char *path, struct place *found, int depth)
{
	const size_t length = strcspn(path, ".");
	const struct btf_member *members = (const struct btf_member *)(const void *)(t + 1);
	const bool has_bits = BTF_INFO_KFLAG(t->info);

	for (uint32_t i = 0; i < BTF_INFO_VLEN(t->info); i++) {
		const struct btf_member *m = &members[i];
		const char *name = name_at(m->name_off);
		const uint32_t bit = has_bits ? BTF_MEMBER_BIT_OFFSET(m->offset) : m->offset;
		const uint32_t bits = has_bits ? BTF_MEMBER_BITFIELD_SIZE(m->offset) : 0;
		const struct btf_type *inner = plain_type(m->type);
		struct place here = { found->offset + bit / 8, size_of_type(m->type), 0 };

		if (!*name && is_compound(inner) && depth < DEPTH_MOST && find_in(inner, path, &here, depth + 1)) {
			*found = here;
			return true;
		}
		if (strlen(name) != length || memcmp(name, path, length))
			continue;
		if (path[length] == '.') {
			if (!is_compound(inner) || depth == DEPTH_MOST || !find_in(inner, path + length + 1, &here, depth + 1))
				return false;
		} else if (bits) {
			if (bit % 8 + bits > 8)
				return false; /* none of those that are asked for */
			here.size = 1;
			here.mask = (uint8_t)(((1U << bits) - 1) << bit % 8);
		}
		*found = here;
		return true;
	}
	return false;
}

/* All structures of a name; what is asked for of one comes one after the other. */
static void look_up(const char *name)
{
	if (asked && !strcmp(asked, name))
		return;
	asked = name;
	alike_count = 0;
	for (uint32_t i = 1; i < type_count; i++) {
		const struct btf_type *t = type_of(i);

		if (BTF_INFO_KIND(t->info) == BTF_KIND_STRUCT && !strcmp(name_at(t->name_off), name) && alike_count < ALIKE_MOST)
			alike[alike_count++] = t;
	}
}

bool find_place(const char *structure, const char *path, struct place *found)
{
	bool is_found = false;

	look_up(structure);
	for (int i = 0; i < alike_count; i++) {
		struct place here = { 0 };

		if (!find_in(alike[i], path, &here, 0) || !here.size)
			continue;
		if (is_found && (here.offset != found->offset || here.size != found->size || here.mask != found->mask))
			return false;
		*found = here;
		is_found = true;
	}
	return is_found && alike_count < ALIKE_MOST;
}

uint32_t size_of_structure(const char *structure)
{
	look_up(structure);
	return alike_count == 1 ? alike[0]->size : 0;
}
