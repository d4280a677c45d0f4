/* PAGEMAP_SCAN of Linux 6.7 (linux/fs.h), which the headers of the build host need not have: which pages of a range of
 * addresses are in some state, asked by ioctl() on an open /proc/PID/pagemap. See Documentation/admin-guide/mm/pagemap.rst. */
#ifndef RELIVE_PAGEMAP_SCAN_H
#define RELIVE_PAGEMAP_SCAN_H

#include <stdint.h>
#include <sys/ioctl.h>

struct scan_arg {
	uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages;
	uint64_t category_inverted, category_mask, category_anyof_mask, return_mask;
};
struct region {
	uint64_t start, end, categories;
};
#define SCAN _IOWR('f', 16, struct scan_arg)

/* scan_arg.flags */
#define SCAN_WP_MATCHING 1
#define CHECK_WPASYNC 2

/* categories */
#define IS_WPALLOWED 1
#define IS_WRITTEN 2
#define IS_FILE 4
#define IS_PRESENT 8
#define IS_SWAPPED 16
#define IS_PFNZERO 32

#endif
