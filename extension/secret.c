/*-------------------------------------------------------------------------
 *
 * secret.c
 *		Pages of their own for column keys and plain values that a backend keeps.
 *
 * They are locked in memory as far as RLIMIT_MEMLOCK allows, so that they do
 * not get into swap, and are no part of a core dump.  A child that the backend
 * forks (the helper, the program of a COPY) does not have them at all, not
 * even until it starts its program.
 *
 * SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 *-------------------------------------------------------------------------
 */
#include "pgseal.h"

#include <sys/mman.h>

/*
 * Pages of zeros for `len` bytes; NULL if there is no memory.  A limit that is too low for the lock is said once, to
 * who looks for it: each connection would say it.
 */
void *
pgseal_secret_alloc(Size len)
{
	static bool said = false;
	void	   *pages = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (pages == MAP_FAILED)
		return NULL;
	/* Not MADV_WIPEONFORK: zeros in the place of keys and values would be wrong ones. */
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

/* Wipes them and gives them back. */
void
pgseal_secret_free(void *pages, Size len)
{
	if (pages == NULL)
		return;
	pgseal_column_wipe(pages, len);
	(void) munmap(pages, len);
}
