//! Copies the elements of a window out of a tensor's bytes, packed ones included.

use bytes::Bytes;

use crate::window::Layout;

/// The bytes of a window where they lie, without a copy; `None` if they do not lie one after the
/// other, or if the window starts or ends inside a byte that it shares with its neighbours.
pub(crate) fn slice(layout: &Layout, bits: usize, bytes: &Bytes) -> Option<Bytes> {
    if !layout.is_contiguous() {
        return None;
    }
    let elements = layout.elements();
    if elements == 0 {
        return Some(Bytes::new());
    }
    let first_bit = layout.offset() * bits;
    let end_bit = first_bit + elements * bits;
    // The last byte of the tensor belongs to its last element, whether or not it is full.
    let ends_well = end_bit.is_multiple_of(8)
        || end_bit.div_ceil(8) == bytes.len() && {
            let behind = end_bit % 8;
            bytes[bytes.len() - 1] >> behind == 0
        };
    let fits = first_bit.is_multiple_of(8) && ends_well;
    fits.then(|| bytes.slice(first_bit / 8..end_bit.div_ceil(8)))
}

/// A copy of a window's elements, row by row. Bits behind the last packed element are zero.
pub(crate) fn copy(layout: &Layout, bits: usize, bytes: &[u8]) -> Vec<u8> {
    let elements = layout.elements();
    let (runs, length) = layout.runs();
    if bits >= 8 {
        let width = bits / 8;
        let mut out = Vec::with_capacity(elements * width);
        for start in runs {
            out.extend_from_slice(&bytes[start * width..(start + length) * width]);
        }
        return out;
    }
    let per_byte = 8 / bits;
    let mask = (1u8 << bits) - 1;
    let mut out = vec![0u8; elements.div_ceil(per_byte)];
    let sources = runs.flat_map(|start| start..start + length);
    for (target, source) in sources.enumerate() {
        let value = bytes[source / per_byte] >> (source % per_byte * bits) & mask;
        out[target / per_byte] |= value << (target % per_byte * bits);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::window::Span;

    fn window(dims: &[usize], spans: &[Span]) -> Layout {
        Layout::whole(dims).window(spans).unwrap()
    }

    #[test]
    fn wide_elements_are_sliced_or_copied() {
        let bytes = Bytes::from((0..24u8).collect::<Vec<_>>());
        let rows = window(&[3, 4], &[Span::new(1, 2), Span::new(0, 4)]);
        let sliced = slice(&rows, 16, &bytes).unwrap();
        assert_eq!(sliced.as_ptr(), bytes[8..].as_ptr());
        assert_eq!(sliced, copy(&rows, 16, &bytes));
        let column = window(&[3, 4], &[Span::new(0, 3), Span::new(3, 1)]);
        assert_eq!(slice(&column, 16, &bytes), None);
        assert_eq!(copy(&column, 16, &bytes), [6, 7, 14, 15, 22, 23]);
    }

    #[test]
    fn packed_elements_are_repacked() {
        // 4-bit elements 1, 2, 3, 4, 5: the first is in the low half of its byte.
        let bytes = Bytes::from_static(&[0x21, 0x43, 0x05]);
        let check = |offset, size, aligned: bool, expected: &[u8]| {
            let part = window(&[5], &[Span::new(offset, size)]);
            assert_eq!(slice(&part, 4, &bytes).is_some(), aligned, "{offset}, {size}");
            assert_eq!(copy(&part, 4, &bytes), expected);
        };
        check(0, 4, true, &[0x21, 0x43]);
        check(2, 3, true, &[0x43, 0x05]);
        check(1, 2, false, &[0x32]);
        check(0, 3, false, &[0x21, 0x03]);
        check(4, 1, true, &[0x05]);
        check(5, 0, true, &[]);
    }

    #[test]
    fn two_bit_elements_with_steps() {
        // 0, 1, 2, 3, 3, 2, 1, 0
        let bytes = Bytes::from_static(&[0b1110_0100, 0b0001_1011]);
        let odd = window(&[8], &[Span::new(1, 4).every(2)]);
        assert_eq!(copy(&odd, 2, &bytes), [0b0010_1101]);
        assert_eq!(slice(&odd, 2, &bytes), None);
        assert_eq!(slice(&window(&[8], &[Span::new(4, 4)]), 2, &bytes).unwrap()[..], [0b0001_1011]);
    }

    #[test]
    fn stray_bits_behind_the_last_element_are_not_passed_on() {
        let bytes = Bytes::from_static(&[0x21, 0xf3]);
        let all = window(&[3], &[Span::new(0, 3)]);
        assert_eq!(slice(&all, 4, &bytes), None);
        assert_eq!(copy(&all, 4, &bytes), [0x21, 0x03]);
    }
}
