/*-------------------------------------------------------------------------
 *
 * reseal.c
 *		New file keys and suites while the server runs: calls the guard module, which
 *		every sealed server has loaded (server/guard/reseal.c, rewrite.c).
 *
 * The guard module is not linked: its functions are found by name.
 *
 * SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 *-------------------------------------------------------------------------
 */
#include "pgseal.h"

#include <dlfcn.h>

PG_FUNCTION_INFO_V1(pgseal_reseal);
PG_FUNCTION_INFO_V1(pgseal_file_keys);
PG_FUNCTION_INFO_V1(pgseal_file_suites);

static Datum
in_guard(const char *name, FunctionCallInfo fcinfo)
{
	PGFunction	function = (PGFunction) dlsym(RTLD_DEFAULT, name);

	if (function == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the files of this server have no keys: it does not run with pgseal_guard"),
				 errhint("On a sealed server, install pgseal_guard.so of the same release of pgseal, and restart the server.")));
	return function(fcinfo);
}

Datum
pgseal_reseal(PG_FUNCTION_ARGS)
{
	return in_guard("pgseal_guard_reseal", fcinfo);
}

Datum
pgseal_file_keys(PG_FUNCTION_ARGS)
{
	return in_guard("pgseal_guard_file_keys", fcinfo);
}

Datum
pgseal_file_suites(PG_FUNCTION_ARGS)
{
	return in_guard("pgseal_guard_file_suites", fcinfo);
}
