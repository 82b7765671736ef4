/*-------------------------------------------------------------------------
 *
 * catalog.c
 *		The sealed types and their key domains.
 *
 * A backend reads the tables of schema _pgseal once, and again when they have
 * changed: a trigger on them sends a relcache invalidation, which reaches every
 * backend.  They are user_catalog_tables, since logical decoding reads them too.
 *
 * SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 *-------------------------------------------------------------------------
 */
#include "pgseal.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/transam.h"
#include "catalog/namespace.h"
#include "commands/trigger.h"
#include "utils/builtins.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/plancache.h"
#include "utils/rel.h"

#define CATALOG_SCHEMA "_pgseal"

/* Columns of _pgseal.domain. */
enum
{
	DOM_NAME = 1, DOM_ID, DOM_PROTECTION, DOM_SALT, DOM_ON_DENIED, DOM_RANDOM_VERSION, DOM_LOOKUP_VERSION,
	DOM_ROTATING_TO, DOM_CREATED, DOM_COMPARE
};

/* Columns of _pgseal.key. */
enum
{
	KEY_DOMAIN = 1, KEY_VERSION, KEY_WRAPPED
};

/* Columns of _pgseal.type. */
enum
{
	TYP_TYPE = 1, TYP_BASE, TYP_MODE, TYP_DOMAIN
};

uint64		pgseal_generation = 0;
bool		pgseal_catalog_stale = true;	/* the next lookup reads it again */
bool		pgseal_any_closed = false;	/* some key domain requires or required a right to compare */

static Oid	relation_ids[3];	/* of the tables domain, key, type, at the last reading */
static MemoryContext cache = NULL;
static HTAB *types = NULL;
static List *domains = NIL;

/* The catalog before the last reading: a running function may still hold a type or a key of it. */
static MemoryContext previous_cache = NULL;
static List *previous_domains = NIL;

static void
relation_changed(Datum arg, Oid relid)
{
	if (relid == InvalidOid || relid == relation_ids[0] || relid == relation_ids[1] ||
		relid == relation_ids[2])
	{
		pgseal_catalog_stale = true;

		/*
		 * Plans may hold constants that are sealed under an old key.  They are reset here and not at the
		 * next reading of the catalog: a cached plan that already runs may cause that reading.
		 */
		if (cache != NULL)
			ResetPlanCache();
	}
	else if (relation_ids[0] == InvalidOid)
		pgseal_catalog_stale = true;	/* CREATE EXTENSION may be under way */
}

void
pgseal_catalog_init(void)
{
	CacheRegisterRelcacheCallback(relation_changed, (Datum) 0);
}

/* The memory context of everything that belongs to this reading of the catalog. */
MemoryContext
pgseal_catalog_context(void)
{
	return cache;
}

/* Forgets all results of the ciphers. */
static void
end_memos(void)
{
	HASH_SEQ_STATUS seq;
	SealedType *type;

	if (types == NULL)
		return;
	hash_seq_init(&seq, types);
	while ((type = hash_seq_search(&seq)) != NULL)
	{
		pgseal_memo_end(&type->sealed);
		pgseal_memo_end(&type->opened);
	}
}

/* Forgets the catalog; its memory and keys are kept until the next call. */
static void
forget(void)
{
	MemoryContext fresh = AllocSetContextCreate(TopMemoryContext, "pgseal catalog", ALLOCSET_SMALL_SIZES);
	ListCell   *lc;

	foreach(lc, previous_domains)
	{
		SealedDomain *domain = lfirst(lc);

		for (int i = 0; i < domain->nkeys; i++)
			pgseal_column_key_free(domain->keys[i].handle);
	}
	end_memos();
	previous_domains = domains;
	domains = NIL;
	types = NULL;
	pgseal_generation++;
	if (previous_cache != NULL)
		MemoryContextDelete(previous_cache);
	previous_cache = cache;
	cache = fresh;
}

typedef void (*row_reader) (HeapTuple tuple, TupleDesc desc);

static void
read_table(Oid relid, row_reader reader)
{
	Relation	rel = table_open(relid, AccessShareLock);
	SysScanDesc scan = systable_beginscan(rel, InvalidOid, false, NULL, 0, NULL);
	HeapTuple	tuple;

	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
		reader(tuple, RelationGetDescr(rel));
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
}

static Datum
attribute(HeapTuple tuple, TupleDesc desc, int number)
{
	bool		isnull;
	Datum		value = heap_getattr(tuple, number, desc, &isnull);

	return isnull ? (Datum) 0 : value;
}

static void
copy_bytes(Datum value, uint8 *to, size_t len, const char *what)
{
	bytea	   *bytes;

	memset(to, 0, len);
	if (value == (Datum) 0)
		return;
	bytes = DatumGetByteaPP(value);
	if (VARSIZE_ANY_EXHDR(bytes) != len)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("pgseal: a %s in its catalog has the wrong length", what)));
	memcpy(to, VARDATA_ANY(bytes), len);
}

static void
read_domain(HeapTuple tuple, TupleDesc desc)
{
	SealedDomain *domain = palloc0(sizeof(SealedDomain));

	namestrcpy(&domain->name, NameStr(*DatumGetName(attribute(tuple, desc, DOM_NAME))));
	domain->id = (uint64) DatumGetInt64(attribute(tuple, desc, DOM_ID));
	domain->by_passphrase =
		strcmp(TextDatumGetCString(attribute(tuple, desc, DOM_PROTECTION)), "passphrase") == 0;
	copy_bytes(attribute(tuple, desc, DOM_SALT), domain->salt, sizeof(domain->salt), "salt");
	domain->mask = strcmp(TextDatumGetCString(attribute(tuple, desc, DOM_ON_DENIED)), "mask") == 0;
	domain->random_version = DatumGetInt32(attribute(tuple, desc, DOM_RANDOM_VERSION));
	domain->lookup_version = DatumGetInt32(attribute(tuple, desc, DOM_LOOKUP_VERSION));
	domain->closed = strcmp(TextDatumGetCString(attribute(tuple, desc, DOM_COMPARE)), "granted") == 0;
	pgseal_any_closed |= domain->closed;
	domain->rotating_to = DatumGetInt32(attribute(tuple, desc, DOM_ROTATING_TO));
	domains = lappend(domains, domain);
}

static void
read_key(HeapTuple tuple, TupleDesc desc)
{
	SealedDomain *domain = pgseal_domain(NameStr(*DatumGetName(attribute(tuple, desc, KEY_DOMAIN))), true);
	DomainKey  *key;

	if (domain == NULL)
		return;
	if (domain->keys == NULL)
		domain->keys = palloc0(sizeof(DomainKey));
	else
		domain->keys = repalloc(domain->keys, sizeof(DomainKey) * (domain->nkeys + 1));
	key = &domain->keys[domain->nkeys++];
	key->version = DatumGetInt32(attribute(tuple, desc, KEY_VERSION));
	key->handle = NULL;
	copy_bytes(attribute(tuple, desc, KEY_WRAPPED), key->wrapped, sizeof(key->wrapped), "wrapped key");
}

static void
read_type(HeapTuple tuple, TupleDesc desc)
{
	Oid			oid = DatumGetObjectId(attribute(tuple, desc, TYP_TYPE));
	Oid			base = DatumGetObjectId(attribute(tuple, desc, TYP_BASE));
	char	   *mode = TextDatumGetCString(attribute(tuple, desc, TYP_MODE));
	SealedType *type = hash_search(types, &oid, HASH_ENTER, NULL);

	memset(type, 0, sizeof(SealedType));
	type->oid = oid;
	type->base = base;
	type->code = pgseal_base_code(base);
	namestrcpy(&type->domain_name, NameStr(*DatumGetName(attribute(tuple, desc, TYP_DOMAIN))));
	type->domain = pgseal_domain(NameStr(type->domain_name), true);
	type->layout = LAYOUT_VARLENA;
	if (strcmp(mode, "format") == 0)
	{
		type->mode = SEAL_FORMAT;
		type->layout = base == NUMERICOID ? LAYOUT_NUMERIC :
			get_typlen(base) == 4 ? LAYOUT_INT4 : LAYOUT_INT8;
	}
	else if (strcmp(mode, "deterministic") == 0)
		type->mode = SEAL_DETERMINISTIC;
	else
		type->mode = SEAL_RANDOM;
}

/* Reads the catalog again. */
void
pgseal_reread(void)
{
	HASHCTL		ctl = {.keysize = sizeof(Oid), .entrysize = sizeof(SealedType)};
	MemoryContext old;
	Oid			schema;

	forget();
	old = MemoryContextSwitchTo(cache);
	ctl.hcxt = cache;
	types = hash_create("pgseal types", 64, &ctl, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	/*
	 * Before reading: an invalidation that arrives during the reading makes the catalog stale
	 * again.
	 */
	pgseal_catalog_stale = false;
	schema = get_namespace_oid(CATALOG_SCHEMA, true);
	relation_ids[0] = OidIsValid(schema) ? get_relname_relid("domain", schema) : InvalidOid;
	relation_ids[1] = OidIsValid(schema) ? get_relname_relid("key", schema) : InvalidOid;
	relation_ids[2] = OidIsValid(schema) ? get_relname_relid("type", schema) : InvalidOid;
	if (OidIsValid(relation_ids[0]) && OidIsValid(relation_ids[1]) && OidIsValid(relation_ids[2]))
	{
		PG_TRY();
		{
			read_table(relation_ids[0], read_domain);
			read_table(relation_ids[1], read_key);
			read_table(relation_ids[2], read_type);
		}
		PG_CATCH();
		{
			pgseal_catalog_stale = true;
			PG_RE_THROW();
		}
		PG_END_TRY();
	}
	MemoryContextSwitchTo(old);
}

SealedDomain *
pgseal_domain(const char *name, bool missing_ok)
{
	ListCell   *lc;

	foreach(lc, domains)
	{
		SealedDomain *domain = lfirst(lc);

		if (strcmp(NameStr(domain->name), name) == 0)
			return domain;
	}
	if (!missing_ok)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("key domain \"%s\" has no key in this database", name),
				 errhint("Make one with SELECT pgseal.create_domain('%s'), or restore schema _pgseal first.", name)));
	return NULL;
}

SealedType *
pgseal_type_or_null(Oid oid)
{
	SealedType *type;

	if (oid < FirstNormalObjectId)
		return NULL;
	pgseal_refresh();
	type = hash_search(types, &oid, HASH_FIND, NULL);
	if (type != NULL && type->name == NULL)
		pgseal_base_complete(type, cache);
	return type;
}

bool
pgseal_is_sealed(Oid oid)
{
	return pgseal_type_or_null(oid) != NULL;
}

SealedType *
pgseal_type(Oid oid)
{
	SealedType *type = pgseal_type_or_null(oid);

	if (type == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("type %s is not registered as a sealed type", format_type_be(oid)),
				 errhint("Make sealed types with pgseal.create_type(); when restoring a dump, restore schema _pgseal first.")));
	return type;
}

/* Loads the keys of the domain of a type, if it has one. */
SealedDomain *
pgseal_load_domain(SealedType *type)
{
	if (type->domain == NULL)
		(void) pgseal_domain(NameStr(type->domain_name), false);
	pgseal_keys_load(type->domain);
	return type->domain;
}

/* ---- the trigger of the catalog ---- */

PG_FUNCTION_INFO_V1(pgseal_catalog_changed);

Datum
pgseal_catalog_changed(PG_FUNCTION_ARGS)
{
	if (!CALLED_AS_TRIGGER(fcinfo))
		elog(ERROR, "pgseal_catalog_changed is a trigger function");
	CacheInvalidateRelcache(((TriggerData *) fcinfo->context)->tg_relation);
	pgseal_catalog_stale = true;
	/* A trigger function returns a null pointer, not an SQL NULL. */
	PG_RETURN_POINTER(NULL);
}
