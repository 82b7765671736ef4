/*-------------------------------------------------------------------------
 *
 * secret.c
 *		Memory pages for column keys and plain values that a backend keeps.
 *
 * The pages are locked in memory as far as RLIMIT_MEMLOCK allows, so that they are
 * not swapped out, and are left out of core dumps.  A child process (the helper,
 * the program of a COPY) does not inherit them, not even before it calls exec.
 *
 * SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 *-------------------------------------------------------------------------
 */
#include "pgseal.h"

#include <sys/mman.h>

/*
 * Pages of zeros for `len` bytes; NULL if there is no memory.  If the limit is too low to lock
 * them, that is logged once per backend, at DEBUG1: with a higher level every connection would log
 * it.
 */
void *
pgseal_secret_alloc(Size len)
{
	static bool said = false;
	void	   *pages = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (pages == MAP_FAILED)
		return NULL;
	/* Not MADV_WIPEONFORK: the child would take the zeros for keys and values. */
	(void) madvise(pages, len, MADV_DONTFORK);
	(void) madvise(pages, len, MADV_DONTDUMP);
	if (mlock(pages, len) != 0 && !said)
	{
		said = true;
		ereport(DEBUG1,
				(errmsg_internal("pgseal: column keys and values could not be locked in memory: %m"),
				 errhint("Raise RLIMIT_MEMLOCK (systemd: LimitMEMLOCK=) if swap is not encrypted.")));
	}
	return pages;
}

/* Wipes the pages and frees them. */
void
pgseal_secret_free(void *pages, Size len)
{
	if (pages == NULL)
		return;
	pgseal_column_wipe(pages, len);
	(void) munmap(pages, len);
}
