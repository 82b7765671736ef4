/*-------------------------------------------------------------------------
 *
 * packing.c
 *		numeric in 60 bits, and back.
 *
 * A numeric value is m * 10^-s.  The packed form holds m (56 bits, signed, at
 * most 16 digits) and s (4 bits) without trailing zeros, so that equal values
 * have equal bits, whatever their scale; the display scale is kept separately.
 * NaN and the infinities have a value of m that no number has.
 *
 * The layout of numeric on disk is that of numeric.c: it has not changed
 * since 9.1, and pg_upgrade relies on it.
 *
 * SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 *-------------------------------------------------------------------------
 */
#include "pgseal.h"

#include "common/int.h"
#include "utils/builtins.h"
#include "utils/numeric.h"

#define MAX_SCALE 15
#define MAX_MANTISSA INT64CONST(9999999999999999)	/* 16 digits */
#define MANTISSA_BITS 56
#define SPECIAL (-(INT64CONST(1) << 55))

/* Bits of the first two bytes of a numeric. */
#define SIGN_MASK 0xC000
#define NEGATIVE 0x4000
#define SHORT 0x8000
#define IS_SPECIAL 0xC000
#define NAN_BITS 0xC000
#define PLUS_INF_BITS 0xD000
#define MINUS_INF_BITS 0xF000
#define SHORT_SIGN 0x2000
#define SHORT_SCALE(header) (((header) & 0x1F80) >> 7)
#define SHORT_WEIGHT(header) ((int) ((header) & 0x3F) - (((header) & 0x40) ? 64 : 0))
#define SHORT_SCALE_SHIFT 7
#define SHORT_WEIGHT_MASK 0x7F

/* So many base-10000 digits hold MAX_MANTISSA, or MAX_SCALE digits after the point. */
#define BASE UINT64CONST(10000)
#define HALF_DIGITS 4

static const int64 power_of_ten[] = {
	INT64CONST(1), INT64CONST(10), INT64CONST(100), INT64CONST(1000), INT64CONST(10000), INT64CONST(100000),
	INT64CONST(1000000), INT64CONST(10000000), INT64CONST(100000000), INT64CONST(1000000000),
	INT64CONST(10000000000), INT64CONST(100000000000), INT64CONST(1000000000000),
	INT64CONST(10000000000000), INT64CONST(100000000000000), INT64CONST(1000000000000000),
	INT64CONST(10000000000000000), INT64CONST(100000000000000000), INT64CONST(1000000000000000000)
};

static uint64
pack(int64 mantissa, int scale)
{
	return ((uint64) mantissa & ((UINT64CONST(1) << MANTISSA_BITS) - 1)) | ((uint64) scale << MANTISSA_BITS);
}

static uint16
half(const char *p)
{
	uint16		value;

	memcpy(&value, p, sizeof(value));
	return value;
}

/*
 * False if the value has more than 16 significant digits, or digits beyond the 15th after the
 * point.  Trailing zeros that do not fit are dropped: 1.50000000000000000, as a division returns
 * it, is displayed shorter.
 */
bool
pgseal_numeric_pack(Datum numeric, uint64 *packed, uint32 *display_scale)
{
	struct varlena *raw = (struct varlena *) DatumGetPointer(numeric);
	struct varlena *value = PG_DETOAST_DATUM_PACKED(numeric);
	const char *p = VARDATA_ANY(value);
	int			len = VARSIZE_ANY_EXHDR(value);
	uint16		header = half(p);
	bool		negative;
	int			scale,
				weight,
				ndigits,
				exponent;
	uint64		m = 0;
	bool		fits = false;

	if ((header & SIGN_MASK) == IS_SPECIAL)
	{
		*display_scale = MAX_SCALE;
		*packed = pack(SPECIAL, header == NAN_BITS ? 15 : header == PLUS_INF_BITS ? 14 : 13);
		return true;
	}
	if (header & SHORT)
	{
		negative = (header & SHORT_SIGN) != 0;
		scale = SHORT_SCALE(header);
		weight = SHORT_WEIGHT(header);
		p += 2;
		len -= 2;
	}
	else
	{
		negative = (header & SIGN_MASK) == NEGATIVE;
		scale = header & 0x3FFF;
		weight = (int16) half(p + 2);
		p += 4;
		len -= 4;
	}
	ndigits = len / 2;
	for (int i = 0; i < ndigits; i++)
		/* 16 digits are in 5 base-10000 digits at most, and the first of 5 is below 1000: that fits. */
		if (pg_mul_u64_overflow(m, BASE, &m) || pg_add_u64_overflow(m, half(p + 2 * i), &m))
			goto done;
	exponent = 4 * (weight - ndigits + 1);
	if (m == 0)
		exponent = 0;
	while (exponent < 0 && m % 10 == 0)
	{
		m /= 10;
		exponent++;
	}
	while (exponent > 0)
	{
		if (pg_mul_u64_overflow(m, 10, &m))
			goto done;
		exponent--;
	}
	if (m > MAX_MANTISSA || -exponent > MAX_SCALE || -exponent > scale)
		goto done;
	/* The mantissa with the displayed trailing zeros must fit into 64 bits, too. */
	scale = Min(scale, MAX_SCALE);
	while (m > (uint64) power_of_ten[18 - (scale + exponent)] - 1)
		scale--;
	*display_scale = scale;
	*packed = pack(negative ? -(int64) m : (int64) m, -exponent);
	fits = true;
done:
	if (value != raw)
		pfree(value);
	return fits;
}

/*
 * The packed form of the text of a number, as pgseal_numeric_pack() of numeric_in() gives it; false
 * for a text that only numeric_in() may judge: more than digits and a point, a value that the type
 * modifier rounds or refuses, or one that may not fit.
 */
bool
pgseal_numeric_pack_text(const char *text, int32 typmod, uint64 *packed, uint32 *display_scale)
{
	bool		negative = *text == '-';
	const char *p = text + negative;
	const char *begin = p;
	const char *point = NULL;
	int64		m = 0;
	int			scale;

	for (;; p++)
	{
		unsigned	digit = (unsigned) (unsigned char) *p - '0';

		if (digit <= 9)
		{
			/* With the point, 16 digits at most: they fit into the packed form. */
			if (p - begin > 16)
				return false;
			m = m * 10 + digit;
		}
		else if (*p == '.' && point == NULL)
			point = p;
		else
			break;
	}
	if (*p != '\0' || p == begin || point == begin || p - begin - (point != NULL) > 16)
		return false;
	scale = point != NULL ? (int) (p - point) - 1 : 0;
	if (scale > MAX_SCALE || (point != NULL && scale == 0))
		return false;
	*display_scale = scale;
	if (typmod >= VARHDRSZ)
	{
		int			precision = ((typmod - VARHDRSZ) >> 16) & 0xFFFF;
		int			typmod_scale = (((typmod - VARHDRSZ) & 0x7FF) ^ 1024) - 1024;

		if (precision > 16 || scale > typmod_scale || typmod_scale > Min(precision, MAX_SCALE) ||
			m >= power_of_ten[precision - typmod_scale + scale])
			return false;
		*display_scale = typmod_scale;
	}
	while (scale > 0 && m % 10 == 0)
	{
		m /= 10;
		scale--;
	}
	if (m > power_of_ten[18 - (*display_scale - scale)] - 1)
		return false;
	*packed = pack(negative ? -m : m, scale);
	return true;
}

/*
 * The numeric m * 10^-scale with this display scale, in the short form.  Not by
 * int64_div_fast_to_numeric(), which computes with numerics: that takes three times as
 * many instructions, and more than all the rest of opening a value.
 */
static Datum
make_numeric(int64 m, int scale, uint32 display_scale)
{
	uint64		size = m < 0 ? -(uint64) m : (uint64) m;
	uint64		whole = size;
	uint64		part = 0;		/* the digits after the point, in whole groups */
	int			groups = (scale + 3) / 4;
	int16		digits[2 * HALF_DIGITS];
	int			first = HALF_DIGITS;
	int			end = HALF_DIGITS + groups;
	uint16		header = SHORT | (uint16) (display_scale << SHORT_SCALE_SHIFT);
	struct varlena *result;
	char	   *p;
	Size		len;

	if (scale > 0)
	{
		whole = size / power_of_ten[scale];
		part = (size - whole * power_of_ten[scale]) * power_of_ten[4 * groups - scale];
	}
	for (int i = end - 1; i >= HALF_DIGITS; i--)
	{
		digits[i] = part % BASE;
		part /= BASE;
	}
	while (whole > 0)
	{
		digits[--first] = whole % BASE;
		whole /= BASE;
	}
	/* A numeric has no zero at either end; zero has no digits, no weight and no sign. */
	while (first < end && digits[first] == 0)
		first++;
	while (end > first && digits[end - 1] == 0)
		end--;
	if (first < end)
		header |= (m < 0 ? SHORT_SIGN : 0) | ((HALF_DIGITS - 1 - first) & SHORT_WEIGHT_MASK);
	len = VARHDRSZ + sizeof(header) + (end - first) * sizeof(int16);
	result = palloc(len);
	SET_VARSIZE(result, len);
	p = VARDATA(result);
	memcpy(p, &header, sizeof(header));
	memcpy(p + sizeof(header), digits + first, (end - first) * sizeof(int16));
	return PointerGetDatum(result);
}

/* False if no value has this packed form: the key is wrong, or the value is damaged. */
bool
pgseal_numeric_unpack(uint64 packed, uint32 display_scale, Datum *numeric)
{
	int			scale = (int) (packed >> MANTISSA_BITS);
	int64		m = (int64) (packed << (64 - MANTISSA_BITS)) >> (64 - MANTISSA_BITS);
	int64		size = m < 0 ? -m : m;

	if (unlikely(m == SPECIAL))
	{
		const char *name = scale == 15 ? "NaN" : scale == 14 ? "Infinity" : "-Infinity";

		if (scale < 13 || display_scale != MAX_SCALE)
			return false;
		*numeric = DirectFunctionCall3(numeric_in, CStringGetDatum(name), ObjectIdGetDatum(InvalidOid),
									   Int32GetDatum(-1));
		return true;
	}
	if (size > MAX_MANTISSA || scale > (int) display_scale || (scale > 0 && m % 10 == 0))
		return false;
	if (size > power_of_ten[18 - ((int) display_scale - scale)] - 1)
		return false;
	*numeric = make_numeric(m, scale, display_scale);
	return true;
}
