//! Whether one weight is another one transposed: exporters differ in which way round they
//! keep a matrix.

use crate::tensor::Tensor;

/// A sum over a matrix's elements that transposing does not change. Two matrices with
/// different sums are not each other's transpose; equal ones are worth a look.
/// `None` for what is not a matrix of whole bytes.
pub fn transpose_invariant(tensor: &Tensor) -> Option<u64> {
    let width = element_width(tensor)?;
    let mix = |element: &[u8]| {
        let mut word = [0; 8];
        word[..width.min(8)].copy_from_slice(&element[..width.min(8)]);
        // Multiplied so that equal sums of different elements are unlikely.
        let value = u64::from_le_bytes(word).wrapping_add(0x9e37_79b9_7f4a_7c15);
        (value ^ (value >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9)
    };
    Some(tensor.bytes().chunks_exact(width).map(mix).fold(0, u64::wrapping_add))
}

/// Whether `left` is `right` transposed, element by element.
pub fn is_transposed(left: &Tensor, right: &Tensor) -> bool {
    let Some(width) = element_width(left) else { return false };
    let (&[rows, columns], &[other_rows, other_columns]) = (left.dims(), right.dims()) else {
        return false;
    };
    if left.dtype() != right.dtype() || (rows, columns) != (other_columns, other_rows) {
        return false;
    }
    (0..rows).all(|row| {
        (0..columns).all(|column| {
            let at = (row * columns + column) * width;
            let mirrored = (column * rows + row) * width;
            left.bytes()[at..at + width] == right.bytes()[mirrored..mirrored + width]
        })
    })
}

/// Bytes of an element of a true matrix: both dimensions above one, whole bytes.
fn element_width(tensor: &Tensor) -> Option<usize> {
    let &[rows, columns] = tensor.dims() else { return None };
    let bits = tensor.dtype().bits()? as usize;
    (rows > 1 && columns > 1 && bits >= 8).then_some(bits / 8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_a_transpose_and_nothing_else() {
        let matrix = Tensor::from_slice(&[2, 3], &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap();
        let mirrored = Tensor::from_slice(&[3, 2], &[1.0f32, 4.0, 2.0, 5.0, 3.0, 6.0]).unwrap();
        let reshaped = matrix.reshaped(&[3, 2]).unwrap();
        assert_eq!(transpose_invariant(&matrix), transpose_invariant(&mirrored));
        assert!(is_transposed(&matrix, &mirrored));
        assert!(!is_transposed(&matrix, &reshaped), "same bytes in another shape");
        assert!(!is_transposed(&matrix, &matrix));
    }

    #[test]
    fn vectors_have_no_transpose() {
        let row = Tensor::from_slice(&[1, 3], &[1i32, 2, 3]).unwrap();
        assert_eq!(transpose_invariant(&row), None);
    }
}
