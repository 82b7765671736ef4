/*-------------------------------------------------------------------------
 *
 * module.c
 *		The start of the module.
 *
 * May use: every other file.
 *
 * SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 *-------------------------------------------------------------------------
 */
#include "pgseal.h"

PG_MODULE_MAGIC;

PGDLLEXPORT void _PG_init(void);

void
_PG_init(void)
{
	if (pgseal_column_abi() != PGSEAL_COLUMN_ABI)
		ereport(ERROR,
				(errmsg("pgseal was linked with another version of its cipher library (%u, header %u)",
						pgseal_column_abi(), PGSEAL_COLUMN_ABI),
				 errhint("Build it again: make build && make install.")));
	pgseal_settings_init();
	pgseal_late_init();
	pgseal_catalog_init();
	pgseal_rights_init();
	pgseal_planner_init();
	pgseal_stat_init();
}
