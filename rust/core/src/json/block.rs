//! Text classified 64 bytes at a time: one bit a byte, so that a scan looks at each block
//! once however many strings, escapes or numbers it holds.

use wide::u8x16;

/// How many bytes a block has.
pub(super) const BLOCK: usize = 64;

type Bytes = [u8; BLOCK];

/// What `classify` says of the block at `at`, filled up with blanks beyond the end of the text.
#[inline]
fn marks(text: &[u8], at: usize, classify: impl Fn(&Bytes) -> u64) -> u64 {
    let rest = text.get(at..).unwrap_or_default();
    match rest.first_chunk() {
        Some(bytes) => classify(bytes),
        None => classify(&filled_up(rest)),
    }
}

#[cold]
fn filled_up(rest: &[u8]) -> Bytes {
    let mut bytes = [b' '; BLOCK];
    bytes[..rest.len()].copy_from_slice(rest);
    bytes
}

/// The bytes at which a run of plain string characters ends: quotes, backslashes and
/// control characters. Beyond the end of the text there are none.
#[inline]
pub(super) fn string_marks(text: &[u8], at: usize) -> u64 {
    marks(text, at, string_marks_of)
}

/// The same of strings that hold no control characters.
#[inline]
pub(super) fn quote_marks(text: &[u8], at: usize) -> u64 {
    marks(text, at, quote_marks_of)
}

/// The bytes that matter outside of strings: quotes, brackets and braces.
#[inline]
pub(super) fn structure_marks(text: &[u8], at: usize) -> u64 {
    marks(text, at, structure_marks_of)
}

/// How many bytes from `at` are whole numbers, each with the comma after it, in plain
/// notation and without blanks; as many as one block holds.
///
/// 0 where the next number is anything else (longer, with an exponent, the array's last,
/// malformed): the caller reads that one by itself.
#[inline]
pub(super) fn number_run(text: &[u8], at: usize) -> usize {
    let Some(bytes) = text.get(at..at + BLOCK).and_then(|b| b.first_chunk()) else {
        return 0;
    };
    let masks = number_masks(bytes);
    let known = masks.digits | masks.commas | masks.minuses | masks.dots;
    // Up to the last comma before the first byte of another kind.
    let readable = masks.commas & low_bits((!known).trailing_zeros());
    if readable == 0 {
        return 0;
    }
    let len = BLOCK - readable.leading_zeros() as usize;
    let within = low_bits(u32::try_from(len).unwrap_or(0));
    let commas = masks.commas & within;
    let minuses = masks.minuses & within;
    let dots = masks.dots & within;
    let digits = masks.digits & within;

    let starts = commas << 1 | 1;
    let first_digits = (starts & digits) | (starts & minuses) << 1;
    let broken = (commas & starts)
        | (minuses & !starts)
        | ((minuses | dots) << 1 & !digits)
        | (dots & !(digits << 1))
        | (first_digits & masks.zeros & digits >> 1);
    if broken == 0 && one_dot_each(dots, commas) {
        len
    } else {
        0
    }
}

/// Whether `text` could hold an integer beyond 64 bits: whether 19 digits follow one another
/// anywhere in it, also in a string or a fraction.
#[must_use]
pub fn has_long_integer(text: &[u8]) -> bool {
    const RUN: usize = 19;
    // Blocks overlap: every run of that length lies whole in one of them.
    (0..text.len()).step_by(BLOCK - RUN + 1).any(|at| {
        let digits = marks(text, at, |bytes| {
            bits(bytes, |lane| at_most(lane - u8x16::splat(b'0'), 9))
        });
        let twos = digits & digits >> 1;
        let fours = twos & twos >> 2;
        let eights = fours & fours >> 4;
        let sixteens = eights & eights >> 8;
        sixteens & sixteens >> 3 != 0
    })
}

/// Whether there is a comma between any two dots.
#[inline]
fn one_dot_each(mut dots: u64, commas: u64) -> bool {
    while dots != 0 {
        let first = dots & dots.wrapping_neg();
        dots ^= first;
        let second = dots & dots.wrapping_neg();
        if second != 0 && commas & second.wrapping_sub(first) == 0 {
            return false;
        }
    }
    true
}

#[inline]
fn low_bits(count: u32) -> u64 {
    1_u64.checked_shl(count).map_or(u64::MAX, |bit| bit - 1)
}

/// What the bytes of a block are, as far as numbers go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct NumberMasks {
    digits: u64,
    zeros: u64,
    commas: u64,
    minuses: u64,
    dots: u64,
}

/// One bit a byte of the block, from what `classify` says of 16 bytes.
#[inline]
fn bits(bytes: &Bytes, classify: impl Fn(u8x16) -> u8x16) -> u64 {
    let (sixteens, _) = bytes.as_chunks::<16>();
    let lane = |lane: usize| {
        let mask = classify(u8x16::new(sixteens[lane])).move_mask();
        u64::from(mask.cast_unsigned()) << (16 * lane)
    };
    lane(0) | lane(1) | lane(2) | lane(3)
}

#[inline]
fn equal(bytes: u8x16, byte: u8) -> u8x16 {
    bytes.cmp_eq(u8x16::splat(byte))
}

#[inline]
fn at_most(bytes: u8x16, most: u8) -> u8x16 {
    bytes.min(u8x16::splat(most)).cmp_eq(bytes)
}

#[inline]
fn string_marks_of(bytes: &Bytes) -> u64 {
    bits(bytes, |lane| {
        // The xor keeps control characters below 0x20 and makes a quote 0x20.
        at_most(lane ^ u8x16::splat(b'"' ^ 0x20), 0x20) | equal(lane, b'\\')
    })
}

#[inline]
fn quote_marks_of(bytes: &Bytes) -> u64 {
    bits(bytes, |lane| equal(lane, b'"') | equal(lane, b'\\'))
}

#[inline]
fn structure_marks_of(bytes: &Bytes) -> u64 {
    bits(bytes, |lane| {
        // Brackets differ from braces in one bit.
        let folded = lane | u8x16::splat(0x20);
        equal(lane, b'"') | equal(folded, b'{') | equal(folded, b'}')
    })
}

#[inline]
fn number_masks(bytes: &Bytes) -> NumberMasks {
    NumberMasks {
        digits: bits(bytes, |lane| at_most(lane - u8x16::splat(b'0'), 9)),
        zeros: bits(bytes, |lane| equal(lane, b'0')),
        commas: bits(bytes, |lane| equal(lane, b',')),
        minuses: bits(bytes, |lane| equal(lane, b'-')),
        dots: bits(bytes, |lane| equal(lane, b'.')),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn naive(bytes: &Bytes, is: impl Fn(u8) -> bool) -> u64 {
        bytes
            .iter()
            .enumerate()
            .fold(0, |bits, (at, byte)| bits | u64::from(is(*byte)) << at)
    }

    fn naive_masks(bytes: &Bytes) -> NumberMasks {
        NumberMasks {
            digits: naive(bytes, |b| b.is_ascii_digit()),
            zeros: naive(bytes, |b| b == b'0'),
            commas: naive(bytes, |b| b == b','),
            minuses: naive(bytes, |b| b == b'-'),
            dots: naive(bytes, |b| b == b'.'),
        }
    }

    #[test]
    fn every_byte_value_is_classified_alike() {
        for value in 0..=u8::MAX {
            let mut bytes = [b'x'; BLOCK];
            bytes[usize::from(value) % BLOCK] = value;
            let marks = naive(&bytes, |b| b == b'"' || b == b'\\' || b < 0x20);
            assert_eq!(string_marks_of(&bytes), marks, "{value}");
            let marks = naive(&bytes, |b| b"\"\\".contains(&b));
            assert_eq!(quote_marks_of(&bytes), marks, "{value}");
            let marks = naive(&bytes, |b| b"\"{}[]".contains(&b));
            assert_eq!(structure_marks_of(&bytes), marks, "{value}");
            assert_eq!(number_masks(&bytes), naive_masks(&bytes), "{value}");
        }
    }

    #[test]
    fn a_run_of_19_digits_is_found_wherever_it_stands() {
        for len in [17, 18, 19, 20, 40] {
            for before in 0..130 {
                let mut text = vec![b'x'; before];
                text.extend(std::iter::repeat_n(b'7', len));
                assert_eq!(has_long_integer(&text), len >= 19, "{before} {len}");
                text.extend([b' '; 70]);
                assert_eq!(has_long_integer(&text), len >= 19, "{before} {len}");
            }
        }
        assert!(!has_long_integer(b""));
        assert!(!has_long_integer(&b"123456789012345678,".repeat(20)));
    }

    /// What `number_run` must find, number by number.
    fn naive_run(text: &[u8]) -> usize {
        let within = &text[..BLOCK];
        let mut len = 0;
        while let Some(comma) = within[len..].iter().position(|b| *b == b',') {
            let number = std::str::from_utf8(&within[len..len + comma]).unwrap();
            let plain = !number.contains(['e', 'E', ' ', '\t', '"', '[', ']']);
            if !plain || serde_json::from_str::<serde_json::Number>(number).is_err() {
                break;
            }
            len += comma + 1;
        }
        len
    }

    proptest! {
        #[test]
        fn a_run_never_passes_what_is_no_number(text in "[0-9,.e-]{64}|([0-9]{1,5},){30}|(-?(0|[1-9][0-9]{0,2})(\\.[0-9]{1,4})?,){40}") {
            let run = number_run(text.as_bytes(), 0);
            let naive = naive_run(text.as_bytes());
            // A block with a fault in it is left to the caller as a whole.
            prop_assert!(run == naive || run == 0, "{} {} {}", text, run, naive);
        }

        #[test]
        fn a_run_takes_plain_numbers(text in "(-?(0|[1-9][0-9]{0,2})(\\.[0-9]{1,4})?,){40}") {
            let run = number_run(text.as_bytes(), 0);
            prop_assert_eq!(run, naive_run(text.as_bytes()));
            prop_assert!(run > 0);
        }
    }
}
