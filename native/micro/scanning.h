/* Which pages there are, and which were written (PAGEMAP_SCAN).
 *
 * Of the mapping of a file only pages are copied that are not the file's own, and whose a page is the kernel has to look up for each. So
 * those that are the file's are protected, too, and looked up again only when they are written; those that are not are known.
 * Elsewhere, too, only pages that were written are looked at one by one: one that is protected still, and was there before, is there.
 * Where the kernel says that no page went away (unchanged.h), all that was there is there, and one look finds what came. */
#pragma once
#include "regions.h"

void make_room_for_scans(void);
bool open_pagemap(void);

/* Whether it may be told by a scan for what was written alone which pages are no longer as they were. */
bool can_scan_quickly(void);

/* Adds the regions of a range that a dump would hold. Whether a page is a file's own is asked only where there are files: the kernel
 * has to look at each page for it, which takes ten times as long. False: refused. */
bool scan_range(struct run_list *list, const struct mapping *range, uint64_t flags, uint64_t mask, uint64_t returned);

/* Each false: refused. What is in all mappings but the kernel's own and shared ones, as they were read last: */

/* Adds what was written, and has what is written from now on noted anew; also writes to pages of files, which make other pages of them. */
bool find_and_protect(struct run_list *list);

/* Finds all that a dump would hold, with what is known of each (categories of PAGEMAP_SCAN). Right after `rehearse_scan` it is quick. */
bool find_present(struct run_list *list);
void rehearse_scan(struct run_list *list);

/* The same by what came to be written since `rehearse_scan`, where no page that was there can be gone: *changed is to be copied, as is what of
 * *list was written before. False: it cannot be told so. */
bool find_changed(struct run_list *list, struct run_list *changed);

/* Right after that: finds the same as if nothing were known, and in an audit it comes to be suspected where it is not. */
bool find_compared(struct run_list *list, struct run_list *changed);

/* After `find_and_protect`: looks for all pages in mappings of files that are others by now. */
bool find_own(void);

/* Pages of a list that lie in mappings of files are not the files' own; after `forget_own` it is not known of any. */
bool note_own(const struct run_list *list);
void forget_own(void);
