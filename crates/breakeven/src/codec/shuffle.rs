//! The byte shuffle: elements of 2, 4 or 8 bytes, taken apart into planes of equal rank.
//!
//! The first plane holds byte 0 of each whole element, the next byte 1, and so on. The bytes after the last whole
//! element follow unchanged. Numbers of one kind differ in their low bytes and agree in the high ones, so the planes
//! compress better than the elements.

/// Takes `source` apart into planes.
///
/// # Panics
///
/// If the lengths differ or `width` is none of 2, 4 and 8.
pub(super) fn shuffle(width: usize, source: &[u8], target: &mut [u8]) {
    assert_eq!(source.len(), target.len(), "shuffle keeps the length");
    match width {
        2 => split::<2>(source, target),
        4 => split::<4>(source, target),
        8 => split::<8>(source, target),
        _ => panic!("no shuffle of width {width}"),
    }
}

/// Puts planes together again; the inverse of [`shuffle`].
///
/// # Panics
///
/// As [`shuffle`].
pub(super) fn unshuffle(width: usize, source: &[u8], target: &mut [u8]) {
    assert_eq!(source.len(), target.len(), "shuffle keeps the length");
    match width {
        2 => join::<2>(source, target),
        4 => join::<4>(source, target),
        8 => join::<8>(source, target),
        _ => panic!("no shuffle of width {width}"),
    }
}

fn split<const WIDTH: usize>(source: &[u8], target: &mut [u8]) {
    let (elements, rest) = source.as_chunks::<WIDTH>();
    let count = elements.len();
    let (planes, tail) = target.split_at_mut(count * WIDTH);
    tail.copy_from_slice(rest);
    if count == 0 {
        return;
    }
    for (rank, plane) in planes.chunks_exact_mut(count).enumerate() {
        for (byte, element) in plane.iter_mut().zip(elements) {
            *byte = element[rank];
        }
    }
}

fn join<const WIDTH: usize>(source: &[u8], target: &mut [u8]) {
    let (elements, tail) = target.as_chunks_mut::<WIDTH>();
    let count = elements.len();
    let (planes, rest) = source.split_at(count * WIDTH);
    tail.copy_from_slice(rest);
    let planes: [&[u8]; WIDTH] = std::array::from_fn(|rank| &planes[rank * count..][..count]);
    for (index, element) in elements.iter_mut().enumerate() {
        for (byte, plane) in element.iter_mut().zip(planes) {
            *byte = plane[index];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(width: usize, source: &[u8], expected: &[u8]) {
        let mut planes = vec![0xEE; source.len()];
        shuffle(width, source, &mut planes);
        assert_eq!(planes, expected);
        let mut back = vec![0xEE; source.len()];
        unshuffle(width, &planes, &mut back);
        assert_eq!(back, source);
    }

    #[test]
    fn planes_hold_bytes_of_equal_rank_and_the_rest_follows() {
        check(2, &[], &[]);
        check(4, &[1, 2, 3], &[1, 2, 3]);
        check(2, &[1, 2, 3, 4, 5], &[1, 3, 2, 4, 5]);
        check(4, &[1, 2, 3, 4, 5, 6, 7, 8], &[1, 5, 2, 6, 3, 7, 4, 8]);
        check(
            8,
            &[0, 1, 2, 3, 4, 5, 6, 7, 8],
            &[0, 1, 2, 3, 4, 5, 6, 7, 8],
        );
    }
}
