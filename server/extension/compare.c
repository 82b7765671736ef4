/*-------------------------------------------------------------------------
 *
 * compare.c
 *		Comparison of sealed values on ciphertext: equality, hash, the order of
 *		indexes.
 *
 * Equality and hash of 32- and 64-bit types are not here: for those, ciphertext
 * is an integer, and SQL uses the server's functions for integers.
 *
 * SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 *-------------------------------------------------------------------------
 */
#include "pgseal.h"

#include "access/detoast.h"
#include "access/nbtree.h"
#include "common/hashfn.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/sortsupport.h"
#include "utils/syscache.h"
#include "utils/typcache.h"

/* ---- the order of indexes ---- */

/*
 * Refuses calls for the elements of arrays, rows and ranges: they would show the order of
 * ciphertext as that of values. Such calls use the FmgrInfo of the type cache, whose address is
 * remembered for each function.
 */
static void
refuse_nested(FunctionCallInfo fcinfo)
{
	static struct
	{
		Oid			function;
		FmgrInfo   *in_type_cache;
	}			known[64];
	FmgrInfo   *flinfo = fcinfo->flinfo;
	int			slot = flinfo->fn_oid % lengthof(known);

	if (unlikely(known[slot].function != flinfo->fn_oid))
	{
		Oid		   *args;
		int			nargs;

		(void) get_func_signature(flinfo->fn_oid, &args, &nargs);
		known[slot].in_type_cache = &lookup_type_cache(args[0], 0)->cmp_proc_finfo;
		known[slot].function = flinfo->fn_oid;
	}
	if (unlikely(known[slot].in_type_cache == flinfo))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("sealed values inside arrays or rows cannot be compared"),
				 errdetail("The order of ciphertext says nothing about values."),
				 errhint("Cast them to plain types first.")));
}

static void
refuse_late(void)
{
	if (unlikely(pgseal_loaded_late()))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the module pgseal was loaded only while this statement ran, too late to look at its ORDER BY"),
				 errdetail("A sort by ciphertext order might pass for one by values."),
				 errhint("Repeat the transaction. ALTER DATABASE ... SET session_preload_libraries = 'pgseal' avoids this.")));
}

#define NUMERIC_BITS(datum) ((uint64) DatumGetInt64(datum) >> 4)

static inline int
compare_u64(uint64 a, uint64 b)
{
	return a < b ? -1 : a > b ? 1 : 0;
}

static inline size_t
length_without(const struct varlena *v, size_t suffix)
{
	size_t		len = VARSIZE_ANY_EXHDR(v);

	return len > suffix ? len - suffix : 0;
}

/* Compares all bytes but the last `suffix` of each value. */
static inline int
compare_without(Datum x, Datum y, size_t suffix)
{
	struct varlena *a = PG_DETOAST_DATUM_PACKED(x);
	struct varlena *b = PG_DETOAST_DATUM_PACKED(y);
	size_t		a_len = length_without(a, suffix);
	size_t		b_len = length_without(b, suffix);
	int			result = memcmp(VARDATA_ANY(a), VARDATA_ANY(b), Min(a_len, b_len));

	if (result == 0)
		result = a_len < b_len ? -1 : a_len > b_len ? 1 : 0;
	if ((Pointer) a != DatumGetPointer(x))
		pfree(a);
	if ((Pointer) b != DatumGetPointer(y))
		pfree(b);
	return result;
}

static int
compare_bytes(Datum x, Datum y)
{
	return compare_without(x, y, 0);
}

/* A deterministic numeric ends with its display scale, which is not compared. */
#define SCALE_BYTES 2

static int
compare_wide(Datum x, Datum y)
{
	return compare_without(x, y, SCALE_BYTES);
}

PG_FUNCTION_INFO_V1(pgseal_cmp_4);
PG_FUNCTION_INFO_V1(pgseal_cmp_8);
PG_FUNCTION_INFO_V1(pgseal_cmp_numeric);
PG_FUNCTION_INFO_V1(pgseal_cmp_bytes);
PG_FUNCTION_INFO_V1(pgseal_cmp_wide);

Datum
pgseal_cmp_4(PG_FUNCTION_ARGS)
{
	int32		a = PG_GETARG_INT32(0);
	int32		b = PG_GETARG_INT32(1);

	refuse_nested(fcinfo);
	PG_RETURN_INT32(a < b ? -1 : a > b ? 1 : 0);
}

Datum
pgseal_cmp_8(PG_FUNCTION_ARGS)
{
	int64		a = PG_GETARG_INT64(0);
	int64		b = PG_GETARG_INT64(1);

	refuse_nested(fcinfo);
	PG_RETURN_INT32(a < b ? -1 : a > b ? 1 : 0);
}

Datum
pgseal_cmp_numeric(PG_FUNCTION_ARGS)
{
	refuse_nested(fcinfo);
	PG_RETURN_INT32(compare_u64(NUMERIC_BITS(PG_GETARG_DATUM(0)), NUMERIC_BITS(PG_GETARG_DATUM(1))));
}

Datum
pgseal_cmp_bytes(PG_FUNCTION_ARGS)
{
	refuse_nested(fcinfo);
	PG_RETURN_INT32(compare_bytes(PG_GETARG_DATUM(0), PG_GETARG_DATUM(1)));
}

Datum
pgseal_cmp_wide(PG_FUNCTION_ARGS)
{
	refuse_nested(fcinfo);
	PG_RETURN_INT32(compare_wide(PG_GETARG_DATUM(0), PG_GETARG_DATUM(1)));
}

static int
sort_numeric(Datum x, Datum y, SortSupport ssup)
{
	return compare_u64(NUMERIC_BITS(x), NUMERIC_BITS(y));
}

static int
sort_bytes(Datum x, Datum y, SortSupport ssup)
{
	return compare_bytes(x, y);
}

static int
sort_wide(Datum x, Datum y, SortSupport ssup)
{
	return compare_wide(x, y);
}

/* The first eight bytes: those after the header look random, and so differ where the values do. */
static Datum
abbreviate_bytes(Datum original, SortSupport ssup)
{
	struct varlena *v = PG_DETOAST_DATUM_PACKED(original);
	size_t		len = Min(VARSIZE_ANY_EXHDR(v), 8);
	const uint8 *bytes = (const uint8 *) VARDATA_ANY(v);
	uint64		key = 0;

	for (size_t i = 0; i < 8; i++)
		key = key << 8 | (i < len ? bytes[i] : 0);
	if ((Pointer) v != DatumGetPointer(original))
		pfree(v);
	return UInt64GetDatum(key);
}

static bool
never_abort(int memtupcount, SortSupport ssup)
{
	return false;
}

PG_FUNCTION_INFO_V1(pgseal_sort_4);
PG_FUNCTION_INFO_V1(pgseal_sort_8);
PG_FUNCTION_INFO_V1(pgseal_sort_numeric);
PG_FUNCTION_INFO_V1(pgseal_sort_bytes);
PG_FUNCTION_INFO_V1(pgseal_sort_wide);

Datum
pgseal_sort_4(PG_FUNCTION_ARGS)
{
	refuse_late();
	((SortSupport) PG_GETARG_POINTER(0))->comparator = ssup_datum_int32_cmp;
	PG_RETURN_VOID();
}

Datum
pgseal_sort_8(PG_FUNCTION_ARGS)
{
	refuse_late();
	((SortSupport) PG_GETARG_POINTER(0))->comparator = ssup_datum_signed_cmp;
	PG_RETURN_VOID();
}

Datum
pgseal_sort_numeric(PG_FUNCTION_ARGS)
{
	refuse_late();
	((SortSupport) PG_GETARG_POINTER(0))->comparator = sort_numeric;
	PG_RETURN_VOID();
}

Datum
pgseal_sort_bytes(PG_FUNCTION_ARGS)
{
	SortSupport ssup = (SortSupport) PG_GETARG_POINTER(0);

	refuse_late();
	ssup->comparator = sort_bytes;
	if (ssup->abbreviate)
	{
		ssup->abbrev_converter = abbreviate_bytes;
		ssup->abbrev_abort = never_abort;
		ssup->comparator = ssup_datum_unsigned_cmp;
		ssup->abbrev_full_comparator = sort_bytes;
	}
	PG_RETURN_VOID();
}

Datum
pgseal_sort_wide(PG_FUNCTION_ARGS)
{
	refuse_late();
	((SortSupport) PG_GETARG_POINTER(0))->comparator = sort_wide;
	PG_RETURN_VOID();
}

/* ---- operators of the index order, and equality ---- */

#define ORDER_OPERATORS(suffix, call) \
	PG_FUNCTION_INFO_V1(pgseal_ord_lt_##suffix); \
	Datum pgseal_ord_lt_##suffix(PG_FUNCTION_ARGS) { PG_RETURN_BOOL((call) < 0); } \
	PG_FUNCTION_INFO_V1(pgseal_ord_le_##suffix); \
	Datum pgseal_ord_le_##suffix(PG_FUNCTION_ARGS) { PG_RETURN_BOOL((call) <= 0); } \
	PG_FUNCTION_INFO_V1(pgseal_ord_ge_##suffix); \
	Datum pgseal_ord_ge_##suffix(PG_FUNCTION_ARGS) { PG_RETURN_BOOL((call) >= 0); } \
	PG_FUNCTION_INFO_V1(pgseal_ord_gt_##suffix); \
	Datum pgseal_ord_gt_##suffix(PG_FUNCTION_ARGS) { PG_RETURN_BOOL((call) > 0); }

#define EQUALITY(suffix, test) \
	PG_FUNCTION_INFO_V1(pgseal_eq_##suffix); \
	Datum pgseal_eq_##suffix(PG_FUNCTION_ARGS) { PG_RETURN_BOOL(test); } \
	PG_FUNCTION_INFO_V1(pgseal_ne_##suffix); \
	Datum pgseal_ne_##suffix(PG_FUNCTION_ARGS) { PG_RETURN_BOOL(!(test)); }

/* The arguments of the function that a macro below makes. */
#define LEFT PG_GETARG_DATUM(0)
#define RIGHT PG_GETARG_DATUM(1)

static bool
equal_bytes(Datum x, Datum y)
{
	/* Values of different lengths are not detoasted. */
	return toast_raw_datum_size(x) == toast_raw_datum_size(y) && compare_bytes(x, y) == 0;
}

ORDER_OPERATORS(4, DatumGetInt32(LEFT) < DatumGetInt32(RIGHT) ? -1 : DatumGetInt32(LEFT) > DatumGetInt32(RIGHT))
ORDER_OPERATORS(8, DatumGetInt64(LEFT) < DatumGetInt64(RIGHT) ? -1 : DatumGetInt64(LEFT) > DatumGetInt64(RIGHT))
ORDER_OPERATORS(numeric, compare_u64(NUMERIC_BITS(LEFT), NUMERIC_BITS(RIGHT)))
ORDER_OPERATORS(bytes, compare_bytes(LEFT, RIGHT))
ORDER_OPERATORS(wide, compare_wide(LEFT, RIGHT))
EQUALITY(4, DatumGetInt32(LEFT) == DatumGetInt32(RIGHT))
EQUALITY(8, DatumGetInt64(LEFT) == DatumGetInt64(RIGHT))
EQUALITY(numeric, NUMERIC_BITS(LEFT) == NUMERIC_BITS(RIGHT))
EQUALITY(bytes, equal_bytes(LEFT, RIGHT))
EQUALITY(wide, compare_wide(LEFT, RIGHT) == 0)

/* ---- hash ---- */

static Datum
hash_number(uint64 v, const uint64 *seed)
{
	return seed ? hash_any_extended((unsigned char *) &v, sizeof(v), *seed) : hash_any((unsigned char *) &v, sizeof(v));
}

static Datum
hash_without(Datum datum, size_t suffix, const uint64 *seed)
{
	struct varlena *v = PG_DETOAST_DATUM_PACKED(datum);
	unsigned char *bytes = (unsigned char *) VARDATA_ANY(v);
	int			len = length_without(v, suffix);
	Datum		result = seed ? hash_any_extended(bytes, len, *seed) : hash_any(bytes, len);

	if ((Pointer) v != DatumGetPointer(datum))
		pfree(v);
	return result;
}

#define HASHES(suffix, call) \
	PG_FUNCTION_INFO_V1(pgseal_hash_##suffix); \
	Datum pgseal_hash_##suffix(PG_FUNCTION_ARGS) { const uint64 *seed = NULL; return call; } \
	PG_FUNCTION_INFO_V1(pgseal_hashext_##suffix); \
	Datum pgseal_hashext_##suffix(PG_FUNCTION_ARGS) \
	{ uint64 given = (uint64) PG_GETARG_INT64(1); const uint64 *seed = &given; return call; }

HASHES(numeric, hash_number(NUMERIC_BITS(LEFT), seed))
HASHES(bytes, hash_without(LEFT, 0, seed))
HASHES(wide, hash_without(LEFT, SCALE_BYTES, seed))
