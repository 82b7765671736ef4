/*-------------------------------------------------------------------------
 *
 * rights.c
 *		Who may decrypt.
 *
 * EXECUTE on the function pgseal_decrypt.DOMAIN() is the right.  A function
 * without an ACL is nobody's: to PostgreSQL it would be everybody's, and
 * pg_restore -x leaves it so.  The last answer is kept until functions or roles
 * change.
 *
 * SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 *-------------------------------------------------------------------------
 */
#include "pgseal.h"

#include "catalog/namespace.h"
#include "catalog/pg_proc.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/inval.h"
#include "utils/syscache.h"

#define MARKER_SCHEMA "pgseal_decrypt"

static uint64 acl_generation = 1;

static void
rights_changed(Datum arg, int cacheid, uint32 hashvalue)
{
	acl_generation++;
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

bool
pgseal_may_decrypt(SealedDomain *domain)
{
	Oid			user = GetUserId();

	if (unlikely(domain->acl_user != user || domain->acl_generation != acl_generation))
	{
		Oid			schema = get_namespace_oid(MARKER_SCHEMA, true);
		oidvector  *none = buildoidvector(NULL, 0);

		domain->marker = !OidIsValid(schema) ? InvalidOid :
			GetSysCacheOid3(PROCNAMEARGSNSP, Anum_pg_proc_oid, CStringGetDatum(NameStr(domain->name)),
							PointerGetDatum(none), ObjectIdGetDatum(schema));
		domain->acl_ok = has_execute(domain->marker, user);
		domain->acl_user = user;
		domain->acl_generation = acl_generation;
	}
	return domain->acl_ok;
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
