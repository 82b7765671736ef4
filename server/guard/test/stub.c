/*
 * A stub of libpgseal.so's interface for testing the guard module alone.  It
 * seals nothing.  STUB_ABI, STUB_XTS, STUB_CTR and STUB_PLAIN in the
 * environment change its answers.
 *
 * SPDX-License-Identifier: Apache-2.0 OR MIT
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

uint32_t	pgseal_abi(void);
int			pgseal_needs_full_page_images(void);

uint32_t
pgseal_abi(void)
{
	const char *abi = getenv("STUB_ABI");

	return abi == NULL ? 4 : (uint32_t) strtoul(abi, NULL, 10);
}

int
pgseal_needs_full_page_images(void)
{
	return getenv("STUB_XTS") == NULL;
}

int			pgseal_needs_data_checksums(void);

int
pgseal_needs_data_checksums(void)
{
	return getenv("STUB_CTR") != NULL;
}

void		pgseal_data_checksums_are_off(void);

void
pgseal_data_checksums_are_off(void)
{
	fputs("stub: no data checksums\n", stderr);
}

void		pgseal_settings_are(int (*ask) (void));

void
pgseal_settings_are(int (*ask) (void))
{
	(void) ask;
}

const char *pgseal_io_method_refused(const char *io_method);

const char *
pgseal_io_method_refused(const char *io_method)
{
	return io_method[0] == 'i' ? "Set io_method = worker." : NULL;
}

const char *pgseal_start_line(void);

const char *
pgseal_start_line(void)
{
	return getenv("STUB_PLAIN") == NULL ? "stub: the line of the start" : NULL;
}

#ifndef WITHOUT_HELLO
void		pgseal_guard_hello(void);

void
pgseal_guard_hello(void)
{
	fputs("stub: hello from the guard\n", stderr);
}
#endif
