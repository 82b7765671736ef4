/*-------------------------------------------------------------------------
 *
 * callsite.c
 *		Finds the sealed type that a call of a function means, and remembers it
 *		between calls.
 *
 * SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 *-------------------------------------------------------------------------
 */
#include "pgseal.h"

#include "access/htup_details.h"
#include "catalog/pg_proc.h"
#include "utils/syscache.h"

CallSite *
pgseal_call_site(FunctionCallInfo fcinfo)
{
	CallSite   *site = fcinfo->flinfo->fn_extra;

	pgseal_refresh();
	if (unlikely(site == NULL))
	{
		site = MemoryContextAllocZero(fcinfo->flinfo->fn_mcxt, sizeof(CallSite));
		fcinfo->flinfo->fn_extra = site;
	}
	if (unlikely(site->generation != pgseal_generation))
	{
		memset(site, 0, sizeof(CallSite));
		site->generation = pgseal_generation;
	}
	return site;
}

/*
 * The type that a function of this module returns or takes.  It is remembered for each function,
 * not for each call site: the parser makes a new call site for each literal.
 */
typedef struct KnownFunction
{
	uint64		generation;
	Oid			function;
	bool		of_result;
	SealedType *type;
} KnownFunction;

static pg_noinline SealedType *
look_up(KnownFunction *known, Oid function, bool of_result)
{
	HeapTuple	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
	Form_pg_proc proc;
	Oid			oid;
	SealedType *type;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for function %u", function);
	proc = (Form_pg_proc) GETSTRUCT(tuple);
	oid = of_result ? proc->prorettype : proc->proargtypes.values[0];
	ReleaseSysCache(tuple);
	type = pgseal_type(oid);
	/* pgseal_type() may have read the catalog again: take the generation after it. */
	known->generation = pgseal_generation;
	known->function = function;
	known->of_result = of_result;
	known->type = type;
	return type;
}

static inline SealedType *
type_of_function(FunctionCallInfo fcinfo, bool of_result)
{
	static KnownFunction functions[256];
	Oid			function = fcinfo->flinfo->fn_oid;
	KnownFunction *known = &functions[function % lengthof(functions)];

	pgseal_refresh();
	if (likely(known->function == function && known->generation == pgseal_generation &&
			   known->of_result == of_result))
		return known->type;
	return look_up(known, function, of_result);
}

SealedType *
pgseal_type_of_result(FunctionCallInfo fcinfo)
{
	return type_of_function(fcinfo, true);
}

SealedType *
pgseal_type_of_argument(FunctionCallInfo fcinfo)
{
	return type_of_function(fcinfo, false);
}
