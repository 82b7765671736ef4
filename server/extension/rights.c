/*-------------------------------------------------------------------------
 *
 * rights.c
 *		Who may decrypt, and who may compare.
 *
 * EXECUTE on the function pgseal_decrypt.DOMAIN() is the right to decrypt.  In key
 * domains that require a right to compare, EXECUTE on pgseal_compare.DOMAIN() is it.  A
 * function without an ACL gives the right to nobody: PostgreSQL would give it to
 * PUBLIC, and pg_restore -x restores functions without their ACL.  The last
 * answer is kept until functions or roles change.
 *
 * SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 *-------------------------------------------------------------------------
 */
#include "pgseal.h"

#include <unwind.h>

#include "access/genam.h"
#include "catalog/namespace.h"
#include "catalog/pg_proc.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/inval.h"
#include "utils/plancache.h"
#include "utils/syscache.h"

#define DECRYPT_SCHEMA "pgseal_decrypt"
#define COMPARE_SCHEMA "pgseal_compare"

static uint64 acl_generation = 1;

static void
rights_changed(Datum arg, int cacheid, uint32 hashvalue)
{
	acl_generation++;
	/* The rights were checked when the plans were made. */
	if (pgseal_any_closed)
		ResetPlanCache();
}

/* Changes whenever the rights of functions or roles may have. */
uint64
pgseal_rights_generation(void)
{
	return acl_generation;
}

void
pgseal_rights_init(void)
{
	CacheRegisterSyscacheCallback(PROCOID, rights_changed, (Datum) 0);
	CacheRegisterSyscacheCallback(AUTHMEMMEMROLE, rights_changed, (Datum) 0);
	CacheRegisterSyscacheCallback(AUTHOID, rights_changed, (Datum) 0);
	CacheRegisterSyscacheCallback(NAMESPACEOID, rights_changed, (Datum) 0);
}

/* Whether a role was given EXECUTE on a function, or is a superuser. */
static bool
has_execute(Oid function, Oid user)
{
	HeapTuple	tuple;
	bool		no_acl;

	if (superuser_arg(user))
		return true;
	if (!OidIsValid(function))
		return false;
	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
	if (!HeapTupleIsValid(tuple))
		return false;
	(void) SysCacheGetAttr(PROCOID, tuple, Anum_pg_proc_proacl, &no_acl);
	ReleaseSysCache(tuple);
	if (no_acl)
		return false;
#if PG_VERSION_NUM >= 160000
	return object_aclcheck(ProcedureRelationId, function, user, ACL_EXECUTE) == ACLCHECK_OK;
#else
	return pg_proc_aclcheck(function, user, ACL_EXECUTE) == ACLCHECK_OK;
#endif
}

/* Apart from the function below, which each value calls: so that one saves no registers. */
static pg_noinline bool
ask_right(SealedDomain *domain, SealedRight *right, Oid user, const char *schema_name)
{
	Oid			schema = get_namespace_oid(schema_name, true);
	oidvector  *none = buildoidvector(NULL, 0);
	Oid			marker = !OidIsValid(schema) ? InvalidOid :
		GetSysCacheOid3(PROCNAMEARGSNSP, Anum_pg_proc_oid, CStringGetDatum(NameStr(domain->name)),
						PointerGetDatum(none), ObjectIdGetDatum(schema));

	right->ok = has_execute(marker, user);
	right->user = user;
	right->generation = acl_generation;
	return right->ok;
}

static inline bool
has_right(SealedDomain *domain, SealedRight *right, const char *schema_name)
{
	Oid			user = GetUserId();

	if (likely(right->user == user && right->generation == acl_generation))
		return right->ok;
	return ask_right(domain, right, user, schema_name);
}

bool
pgseal_may_decrypt(SealedDomain *domain)
{
	return has_right(domain, &domain->decrypt, DECRYPT_SCHEMA);
}

/* Everybody may compare in a domain that is not closed, and whoever may decrypt may compare. */
bool
pgseal_may_compare(SealedDomain *domain)
{
	return !domain->closed || pgseal_may_decrypt(domain) || has_right(domain, &domain->compare, COMPARE_SCHEMA);
}

void
pgseal_expect_compare(SealedType *type)
{
	/* Without a domain there is no key, and so there are no values to compare. */
	if (type->domain == NULL || likely(pgseal_may_compare(type->domain)))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
			 errmsg("permission denied to compare values of %s (key domain %s)", type->name, NameStr(type->domain_name)),
			 errdetail("Without it a role can store values of this key domain, and do nothing else with them."),
			 errhint("SELECT pgseal.grant_compare('%s', '%s') gives the right.",
					 NameStr(type->domain_name), GetUserNameFromId(GetUserId(), true))));
}

static _Unwind_Reason_Code
find_report(struct _Unwind_Context *frame, void *found)
{
	if (_Unwind_GetRegionStart(frame) != (uintptr_t) BuildIndexValueDescription)
		return _URC_NO_REASON;
	*(bool *) found = true;
	return _URC_END_OF_STACK;
}

/*
 * Whether PostgreSQL asks for the text of a value only for the DETAIL of a violated
 * unique or exclusion constraint.  An error in there would take the place of the
 * violation, and with it of its SQLSTATE, which clients and ON CONFLICT-like loops
 * wait for.  PostgreSQL passes nothing to an output function that would tell, so the
 * callers are looked at; that takes microseconds, and happens only where the right
 * is missing.
 */
bool
pgseal_reports_violation(void)
{
	bool		found = false;

	_Unwind_Backtrace(find_report, &found);
	return found;
}

void
pgseal_denied(SealedType *type)
{
	ereport(ERROR,
			(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
			 errmsg("permission denied to decrypt %s (key domain %s)", type->name, NameStr(type->domain_name)),
			 errhint("SELECT pgseal.grant_decrypt('%s', '%s') gives the right; with pgseal.format = sealed values are shown as ciphertext.",
					 NameStr(type->domain_name), GetUserNameFromId(GetUserId(), true))));
}
