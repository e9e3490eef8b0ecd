//! Elements of 16-bit tensors compared with those of flat ones, rounded.

use lmc::Segment;
use lmc_kernels::predict::Conversion;
use lmc_kernels::predict::convert;

/// Elements that are looked up together.
pub(super) const WINDOW: u64 = 8;
/// Up to this number of elements each is compared; of more, windows.
const WHOLE: u64 = 1 << 12;
/// Windows of a part that agrees.
const WINDOWS: u64 = 8;

/// The elements of a window.
pub(super) type Key = u128;

/// The key of the window at the beginning of 16-bit elements.
pub(super) fn key(elements: &[u8]) -> Key {
    Key::from_le_bytes(*elements.first_chunk().expect("a whole window"))
}

/// Whether a window is one value. Such windows are frequent, and identify nothing.
pub(super) fn is_constant(key: Key) -> bool {
    key == key.rotate_left(16)
}

/// An element of a 16-bit tensor, and the one of a flat tensor that it may be rounded from. Both tensors are indices.
#[derive(Clone, Copy)]
pub(super) struct Pair {
    pub(super) tensor: usize,
    pub(super) first: u64,
    pub(super) flat: usize,
    pub(super) at: u64,
}

impl Pair {
    /// `n` elements further on.
    fn ahead(self, n: u64) -> Self {
        Self { first: self.first + n, at: self.at + n, ..self }
    }

    /// `n` elements before.
    pub(super) fn back(self, n: u64) -> Self {
        Self { first: self.first - n, at: self.at - n, ..self }
    }
}

/// How far a tensor and a flat one agree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Agreement {
    pub(super) elements: u64,
    /// Whether elements that were compared differ from their neighbours.
    pub(super) varied: bool,
}

/// Reads elements, up to a number of times.
pub(super) struct Elements<'a, R> {
    pub(super) tensors: &'a [Segment],
    conversion: Conversion,
    read: R,
    reads: u64,
    raw: Vec<u8>,
    own: Vec<u8>,
    rounded: Vec<u8>,
}

impl<'a, E, R: FnMut(u64, &mut [u8]) -> Result<(), E>> Elements<'a, R> {
    pub(super) fn new(tensors: &'a [Segment], conversion: Conversion, reads: u64, read: R) -> Self {
        Self { tensors, conversion, read, reads, raw: vec![], own: vec![], rounded: vec![] }
    }

    /// Whether nothing more is to be read.
    pub(super) fn are_used_up(&self) -> bool {
        self.reads == 0
    }

    /// `n` elements of a 16-bit tensor.
    pub(super) fn of_tensor(&mut self, tensor: usize, first: u64, n: u64) -> Result<&[u8], E> {
        self.reads = self.reads.saturating_sub(1);
        self.own.resize(2 * n as usize, 0);
        (self.read)(self.tensors[tensor].offset + 2 * first, &mut self.own)?;
        Ok(&self.own)
    }

    /// `n` elements of a flat tensor, rounded.
    pub(super) fn of_flat(&mut self, flat: usize, first: u64, n: u64) -> Result<&[u8], E> {
        self.reads = self.reads.saturating_sub(1);
        self.raw.resize(4 * n as usize, 0);
        (self.read)(self.tensors[flat].offset + 4 * first, &mut self.raw)?;
        convert(self.conversion, &self.raw, &mut self.rounded);
        Ok(&self.rounded)
    }

    /// How many of a few elements agree, from the first on.
    fn exactly(&mut self, from: Pair, n: u64) -> Result<Agreement, E> {
        self.of_tensor(from.tensor, from.first, n)?;
        self.of_flat(from.flat, from.at, n)?;
        let (own, rounded) = (self.own.as_chunks::<2>().0, self.rounded.as_chunks::<2>().0);
        let agree = own.iter().zip(rounded).take_while(|(a, b)| a == b).count();
        let varied = own[..agree].windows(2).any(|w| w[0] != w[1]);
        Ok(Agreement { elements: agree as u64, varied })
    }

    /// Whether a window agrees, and whether it is no single value.
    fn window(&mut self, from: Pair) -> Result<(bool, bool), E> {
        let agreement = self.exactly(from, WINDOW)?;
        Ok((agreement.elements == WINDOW, agreement.varied))
    }

    /// How many of `most` elements agree, from the first on, by samples: nothing if no more may be read.
    pub(super) fn agreement(&mut self, from: Pair, most: u64) -> Result<Agreement, E> {
        if self.are_used_up() {
            return Ok(Agreement::default());
        }
        if most <= WHOLE {
            let some = self.exactly(from, most)?;
            let (own, rounded) = (self.own.as_chunks::<2>().0, self.rounded.as_chunks::<2>().0);
            let differ = own.iter().zip(rounded).filter(|(a, b)| a != b).count() as u64;
            // A few differing elements do little harm, and the part after them is found.
            return Ok(Agreement { elements: if differ <= most / 16 { most } else { some.elements }, ..some });
        }
        let mut all = Agreement { elements: 0, varied: false };
        for i in 0..WINDOWS {
            // The last one is at the end.
            let place = (most - WINDOW) / (WINDOWS - 1) * i + (most - WINDOW) % (WINDOWS - 1) * (i / (WINDOWS - 1));
            let (agrees, varied) = self.window(from.ahead(place))?;
            if !agrees {
                return self.end(from, all, place + WINDOW);
            }
            (all.elements, all.varied) = (place, all.varied | varied);
        }
        Ok(Agreement { elements: most, ..all })
    }

    /// Where elements that agree so far begin to differ, before `end`.
    fn end(&mut self, from: Pair, so_far: Agreement, mut end: u64) -> Result<Agreement, E> {
        let mut start = so_far.elements;
        while end - start > WHOLE {
            let middle = start + (end - start) / 2;
            match self.window(from.ahead(middle))?.0 {
                true => start = middle,
                false => end = middle + WINDOW,
            }
        }
        let last = self.exactly(from.ahead(start), end - start)?;
        Ok(Agreement { elements: start + last.elements, varied: so_far.varied | last.varied })
    }

    /// How many of the `most` elements before agree, up to the given ones, which do.
    pub(super) fn agreement_before(&mut self, from: Pair, most: u64) -> Result<u64, E> {
        if self.window(from.back(most))?.0 {
            return Ok(most);
        }
        let (mut agree, mut differ) = (0, most);
        while differ - agree > 1 {
            let middle = agree + (differ - agree) / 2;
            match self.window(from.back(middle))?.0 {
                true => agree = middle,
                false => differ = middle,
            }
        }
        Ok(agree)
    }
}
