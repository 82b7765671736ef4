/*-------------------------------------------------------------------------
 *
 * pgseal.h
 *		The types and functions that the files of the extension share.
 *
 * A sealed type belongs to one key domain for ever: PostgreSQL gives an output
 * function the value alone, and a format-preserving value has no room for the
 * name of its key.  So the SQL function that is called determines the type, the
 * type determines the domain, and the domain has the keys.
 *
 * SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSEAL_H
#define PGSEAL_H

#include "postgres.h"

#include "fmgr.h"
#include "lib/stringinfo.h"
#include "nodes/parsenodes.h"
#include "utils/timestamp.h"
#if PG_VERSION_NUM >= 160000
#include "varatt.h"
#endif

/*
 * What the files share is called directly, not through the module's table of symbols, which would
 * let another library put its own function there.
 */
#pragma GCC visibility push(hidden)

#include "pgseal_column.h"

#ifndef USE_FLOAT8_BYVAL
#error "pgseal needs a 64-bit PostgreSQL"
#endif

#if PG_VERSION_NUM < 150000 || PG_VERSION_NUM >= 190000
#error "pgseal is written for PostgreSQL 15 to 18"
#endif

#define PGSEAL_NORETURN __attribute__((noreturn))

typedef enum SealMode
{
	SEAL_FORMAT = 'f',			/* deterministic, format-preserving: FF1 */
	SEAL_DETERMINISTIC = 'd',	/* deterministic, authenticated: AES-SIV */
	SEAL_RANDOM = 'r'			/* randomised, authenticated: AES-GCM */
} SealMode;

/* How the values of a type are stored. */
typedef enum SealLayout
{
	LAYOUT_INT4,				/* 32-bit number */
	LAYOUT_INT8,				/* 64-bit number */
	LAYOUT_NUMERIC,				/* 60 bits of FF1, 4 bits of display scale */
	LAYOUT_VARLENA				/* authenticated modes */
} SealLayout;

typedef struct DomainKey
{
	uint32		version;
	uint8		wrapped[PGSEAL_COLUMN_WRAPPED_BYTES];
	pgseal_column_key *handle;	/* NULL until loaded */
} DomainKey;

/* The last answer whether a role has a right: EXECUTE on the function of the domain in a schema */
typedef struct SealedRight
{
	Oid			user;
	uint64		generation;
	bool		ok;
} SealedRight;

typedef struct SealedDomain
{
	NameData	name;
	uint64		id;
	bool		by_passphrase;	/* else by the provider */
	bool		mask;			/* a role without the right sees a mask */
	bool		closed;			/* comparing requires a right */
	uint8		salt[PGSEAL_COLUMN_SALT_BYTES];
	uint32		random_version; /* for new randomised values */
	uint32		lookup_version; /* for deterministic values */
	uint32		rotating_to;	/* 0, or the lookup version that a rotation moves values to */
	int			nkeys;
	DomainKey  *keys;
	pgseal_column_key *random_key;	/* handles of the two versions; NULL until loaded */
	pgseal_column_key *lookup_key;
	/* the last answers about the rights to decrypt and to compare */
	SealedRight decrypt;
	SealedRight compare;
} SealedDomain;

/* memo.c: the last results of a deterministic cipher, in one direction */
#define MEMO_PLAIN_BYTES 24		/* longest plain string */
#define MEMO_STRING_BYTES 48	/* longest plain or sealed string */

typedef struct MemoNumber
{
	uint64		from;
	uint64		to;
} MemoNumber;

typedef struct MemoInt4
{
	uint32		from;
	uint32		to;
} MemoInt4;

/* A sealed numeric with its display scale, and the numeric as PostgreSQL has it. */
#define MEMO_NUMERIC_BYTES 16	/* of 16 digits: length, 2 bytes, 5 base-10000 digits at most */

typedef struct MemoNumeric
{
	uint64		from;
	uint64		to[MEMO_NUMERIC_BYTES / sizeof(uint64)];
} MemoNumeric;

typedef struct MemoString
{
	uint8		from_len;		/* both lengths 0: empty */
	uint8		to_len;
	uint8		from[MEMO_STRING_BYTES];
	uint8		to[MEMO_STRING_BYTES];
} MemoString;

typedef struct Memo
{
	uint32		uses;
	Size		len;			/* of the table, in bytes */
	union
	{
		void	   *any;
		MemoInt4   *int4s;		/* of numbers of 32 bits */
		MemoNumber *numbers;
		MemoNumeric *numerics;	/* of format-preserving numerics, from sealed to plain */
		MemoString *strings;	/* of authenticated types */
	}			table;			/* NULL until the type has many values */
} Memo;

typedef struct SealedType
{
	Oid			oid;			/* hash key */
	Oid			base;
	SealMode	mode;
	SealLayout	layout;
	uint32		code;			/* PGSEAL_COLUMN_TYPE_* */
	SealedDomain *domain;		/* NULL if there is no such domain (yet) */
	NameData	domain_name;
	char	   *name;
	/* the base type */
	int16		base_len;
	bool		base_byval;
	Oid			base_ioparam;
	FmgrInfo	base_in;
	FmgrInfo	base_out;
	FmgrInfo	base_recv;
	FmgrInfo	base_send;
	FmgrInfo	base_coerce;	/* (base, typmod, explicit); fn_oid 0 if none */
	Memo		sealed;			/* from plain to sealed */
	Memo		opened;			/* from sealed to plain */
} SealedType;

/* What fn_extra of a call site points to. */
typedef struct CallSite
{
	uint64		generation;
	SealedType *type;
	Oid			left;			/* operators on two arguments: their types */
	Oid			right;
	SealedType *sealed_types[2];	/* order operators: of the two, NULL for a plain type */
	FmgrInfo	cmp;
	/* the last format-preserving value of each side: a constant is opened once */
	bool		seen[2];
	Datum		sealed[2];
	Datum		opened[2];
} CallSite;

/* The numbers of values that this session has sealed, has opened, and could not open. */
typedef struct SealCounts
{
	uint64		sealed;
	uint64		opened;
	uint64		failed;
} SealCounts;

/* stat.c */
extern SealCounts pgseal_counts;
extern void pgseal_stat_init(void);

/* catalog.c */
extern uint64 pgseal_generation;
extern void pgseal_catalog_init(void);
extern MemoryContext pgseal_catalog_context(void);
extern bool pgseal_is_sealed(Oid type);
extern SealedType *pgseal_type(Oid type);
extern SealedType *pgseal_type_or_null(Oid type);
extern SealedDomain *pgseal_domain(const char *name, bool missing_ok);
extern SealedDomain *pgseal_load_domain(SealedType *type);
extern bool pgseal_catalog_stale;
extern bool pgseal_any_closed;
extern void pgseal_reread(void);

/* Reads the catalog again if it has changed. */
static inline void
pgseal_refresh(void)
{
	if (unlikely(pgseal_catalog_stale))
		pgseal_reread();
}

/* The domain of a type, with its keys loaded. */
static inline SealedDomain *
pgseal_domain_of(SealedType *type)
{
	if (likely(type->domain != NULL && type->domain->lookup_key != NULL))
		return type->domain;
	return pgseal_load_domain(type);
}

/* base.c: base types */
extern uint32 pgseal_base_code(Oid base);
extern void pgseal_base_complete(SealedType *type, MemoryContext cache);

/* callsite.c */
extern CallSite *pgseal_call_site(FunctionCallInfo fcinfo);
extern SealedType *pgseal_type_of_result(FunctionCallInfo fcinfo);
extern SealedType *pgseal_type_of_argument(FunctionCallInfo fcinfo);

/* rights.c */
extern void pgseal_rights_init(void);
extern uint64 pgseal_rights_generation(void);
extern bool pgseal_may_decrypt(SealedDomain *domain);
extern bool pgseal_reports_violation(void);
PGSEAL_NORETURN extern void pgseal_denied(SealedType *type);
extern bool pgseal_may_compare(SealedDomain *domain);
extern void pgseal_expect_compare(SealedType *type);

/* wire.c */
struct ParseState;
extern void pgseal_base_types_on_the_wire(struct ParseState *pstate, Query *query);

/* rotate.c */
extern bool pgseal_rotates_now(void);

/* keys.c */
extern void pgseal_keys_load(SealedDomain *domain);
extern void pgseal_keys_export(void);
extern pgseal_column_key *pgseal_key_version(SealedDomain *domain, uint32 version);
PGSEAL_NORETURN extern void pgseal_fail(int code, SealedType *type, const char *doing);

/* secret.c: pages for secrets */
extern void *pgseal_secret_alloc(Size len);
extern void pgseal_secret_free(void *pages, Size len);

/* settings.c */
typedef enum ExternalForm
{
	FORM_PLAIN,
	FORM_SEALED
} ExternalForm;

extern int	pgseal_format;
extern bool pgseal_base_types;
extern char *pgseal_provider;
extern char *pgseal_helper;
extern char *pgseal_passphrase;
extern char *pgseal_pgcrypto_key;
extern char *pgseal_worker_keys;
extern bool pgseal_setting_worker_keys;
extern void pgseal_settings_init(void);

/* late.c */
extern void pgseal_late_init(void);
extern bool pgseal_loaded_late(void);

/* spawn.c */
extern void pgseal_run_helper(const char *task, const char *to_provider,
							  const uint8 *input, size_t input_len,
							  uint8 *output, size_t output_len);

/* value.c: one value, of any type */
extern Datum pgseal_seal(SealedType *type, Datum plain);
extern Datum pgseal_seal_characters(SealedType *type, const char *text);
extern Datum pgseal_seal_packed(SealedType *type, uint64 packed, uint32 display_scale);
extern Datum pgseal_open(SealedType *type, Datum sealed);
extern Datum pgseal_recrypt(SealedType *type, Datum sealed, uint32 from, uint32 to);
extern bool pgseal_fits(SealedType *type, Datum plain);

/* text.c */
extern Datum pgseal_seal_text(SealedType *type, char *text, int32 typmod);

/* form.c: the sealed form */
extern Datum pgseal_form_from_text(SealedType *type, const char *text);
extern char *pgseal_form_to_text(SealedType *type, Datum sealed);
extern Datum pgseal_form_receive(SealedType *type, StringInfo buf);
extern bytea *pgseal_form_send(SealedType *type, Datum sealed);
extern void pgseal_form_refuse_text(SealedType *type, const char *text);
extern void pgseal_form_refuse_binary(SealedType *type, StringInfo buf);

/* memo.c */
extern void pgseal_memo_end(Memo *memo);
extern bool pgseal_memo_make(Memo *memo, Size len);
extern MemoString *pgseal_memo_string(Memo *memo, const uint8 *from, size_t len, size_t max_len);
extern bool pgseal_memo_has(const MemoString *memo, const uint8 *from, size_t len);
extern void pgseal_memo_set(MemoString *memo, const uint8 *from, size_t len, const uint8 *to, size_t to_len);

#define MEMO_INT4_BITS 14		/* 16,384 pairs, 128 kB */
#define MEMO_NUMBER_BITS 14		/* 16,384 pairs, 256 kB */
#define MEMO_NUMERIC_BITS 13	/* 8,192 pairs, 192 kB */
#define MEMO_HASH_FACTOR UINT64CONST(0x9E3779B97F4A7C15)

/*
 * Makes a table of numbers or numerics if there is none; false without it.  An empty entry looks as
 * if it held the number 0.  0 belongs in entry 0, so that entry starts with the number 1, which
 * belongs in another entry.
 */
#define MEMO_READY(memo, entries, bits) \
	(likely((memo)->table.any != NULL) || \
	 (pgseal_memo_make(memo, sizeof(*(memo)->table.entries) << (bits)) && \
	  ((memo)->table.entries[0].from = 1, true)))

/*
 * The entry for a number, NULL if there is no table (yet).  It holds the number if its `from` is
 * the number.  Numbers of 32 bits are dates, codes and keys: neighbours are neighbours in the
 * table, so that few lines of the processor's cache hold them.
 */
static inline MemoInt4 *
pgseal_memo_int4(Memo *memo, uint32 from)
{
	if (!MEMO_READY(memo, int4s, MEMO_INT4_BITS))
		return NULL;
	return &memo->table.int4s[from & ((1 << MEMO_INT4_BITS) - 1)];
}

/* The same for a number of 64 or 60 bits. */
static inline MemoNumber *
pgseal_memo_number(Memo *memo, uint64 from)
{
	if (!MEMO_READY(memo, numbers, MEMO_NUMBER_BITS))
		return NULL;
	return &memo->table.numbers[(from * MEMO_HASH_FACTOR) >> (64 - MEMO_NUMBER_BITS)];
}

/* The same for a sealed numeric. */
static inline MemoNumeric *
pgseal_memo_numeric(Memo *memo, uint64 from)
{
	if (!MEMO_READY(memo, numerics, MEMO_NUMERIC_BITS))
		return NULL;
	return &memo->table.numerics[(from * MEMO_HASH_FACTOR) >> (64 - MEMO_NUMERIC_BITS)];
}

/* packing.c: numeric in 60 bits, and 4 bits of display scale */
extern bool pgseal_numeric_pack(Datum numeric, uint64 *packed, uint32 *display_scale);
extern bool pgseal_numeric_pack_text(const char *text, int32 typmod, uint64 *packed, uint32 *display_scale);
extern bool pgseal_numeric_unpack(uint64 packed, uint32 display_scale, Datum *numeric);

/* fold.c */
extern Node *pgseal_fold(Node *node);

/* sorting.c: ORDER BY by the plain value */
extern void pgseal_fix_sorting(Query *query);
extern void pgseal_fix_aggregate(Aggref *aggref);
extern void pgseal_check_min_max(MinMaxExpr *expr);

/* planner.c */
extern void pgseal_planner_init(void);

#pragma GCC visibility pop

#endif							/* PGSEAL_H */
