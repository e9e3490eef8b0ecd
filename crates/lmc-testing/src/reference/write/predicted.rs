//! Predicted columns (§3.7) from a description.
//!
//! Conversions and contexts are shared with the reference decoder.

use super::super::dependencies::{bytes_of, elements};
use super::super::predicted::{Conversion, Predictor, context, key, ord};
use super::dependency::Dependency;
use super::stream::{Cluster, Output, Stream};
use super::varint;

/// A column of method 3.
#[derive(Clone, Debug)]
pub struct Predicted {
    pub raw: Vec<u8>,
    pub width_code: u8,
    pub predictor: u8,
    pub conversion: u8,
    pub prediction: Named,
    /// Boundaries between contexts; empty for a single context.
    pub boundaries: Vec<u8>,
    pub unchanged: Option<UnchangedRuns>,
    /// One for each context; not used when the context is empty.
    pub streams: Vec<Stream>,
}

/// The unchanged runs of 128 elements: those equal to their predictions.
#[derive(Clone, Debug)]
pub struct UnchangedRuns {
    /// One for each run: 1 if it is unchanged, and 0 if it is coded.
    pub runs: Vec<u8>,
    /// How the map is coded.
    pub map: Cluster,
}

/// Consecutive dependencies of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Named {
    pub first: u64,
    pub count: u64,
}

/// The prediction and the context of each element.
struct Classified {
    predictions: Vec<u64>,
    /// `None` in unchanged runs.
    contexts: Vec<Option<usize>>,
}

impl Predicted {
    /// Number of elements of each context. Of `raw` only the length matters.
    ///
    /// # Errors
    /// When the dependencies do not have the column's number of elements.
    pub fn context_counts(&self, dependencies: &[Dependency]) -> Result<Vec<usize>, String> {
        let Classified { contexts, .. } = self.classified(dependencies)?;
        Ok((0..=self.boundaries.len())
            .map(|context| contexts.iter().filter(|&&c| c == Some(context)).count())
            .collect())
    }

    /// Replaces `raw`, keeping its length, by the elements that have these residuals, context by context; unchanged runs
    /// equal their predictions.
    ///
    /// # Errors
    /// When the dependencies do not have the column's number of elements.
    ///
    /// # Panics
    /// When a context has fewer residuals than elements.
    pub fn set_residuals(&mut self, dependencies: &[Dependency], residuals: Vec<Vec<u64>>) -> Result<(), String> {
        let Classified { predictions, contexts } = self.classified(dependencies)?;
        let predictor = Predictor::of(self.predictor).ok_or("there is no such predictor")?;
        let mut residuals: Vec<_> = residuals.into_iter().map(Vec::into_iter).collect();
        let element = |(p, context): (u64, Option<usize>)| {
            let Some(context) = context else { return p };
            let e = residuals[context].next().expect("every element has a residual");
            predictor.element(e, p, self.w())
        };
        let elements: Vec<u64> = predictions.into_iter().zip(contexts).map(element).collect();
        self.raw = bytes_of(&elements, self.width());
        Ok(())
    }

    fn width(&self) -> usize {
        1 << self.width_code
    }

    fn w(&self) -> u32 {
        8 << self.width_code
    }

    fn classified(&self, dependencies: &[Dependency]) -> Result<Classified, String> {
        let n = self.raw.len() / self.width();
        let conversion = Conversion::of(self.conversion).ok_or("there is no such conversion")?;
        let mut predictions = self.prediction.elements(dependencies, conversion.takes(self.width()), n)?;
        predictions.iter_mut().for_each(|p| *p = conversion.convert(*p));
        let context = |(i, &p): (usize, &u64)| {
            let unchanged = self.unchanged.as_ref().is_some_and(|of| of.contain(i));
            (!unchanged).then(|| context(key(p, self.w()), &self.boundaries))
        };
        let contexts = predictions.iter().enumerate().map(context).collect();
        Ok(Classified { predictions, contexts })
    }

    pub(super) fn encode(&self, dependencies: &[Dependency], output: &mut Output<'_>) -> Result<(), String> {
        output.head.extend([3, self.width_code, self.predictor, self.conversion]);
        self.prediction.write(&mut output.head);
        output.head.push(self.boundaries.len() as u8);
        output.head.extend(&self.boundaries);

        match &self.unchanged {
            None => output.head.push(0),
            Some(unchanged) => unchanged.encode(self.raw.len() / self.width(), output)?,
        }

        let Classified { predictions, contexts } = self.classified(dependencies)?;
        let mut residuals = vec![Vec::new(); self.boundaries.len() + 1];
        for ((u, p), context) in elements(&self.raw, self.width()).into_iter().zip(predictions).zip(contexts) {
            match context {
                Some(context) => residuals[context].push(residual(self.predictor, u, p, self.w())),
                None if u == p => (),
                None => return Err("an element of an unchanged run is not its prediction".into()),
            }
        }
        for (context, residuals) in residuals.iter().enumerate() {
            varint(&mut output.head, residuals.len() as u64);
            if !residuals.is_empty() {
                let stream = self.streams.get(context).ok_or("a context has no stream")?;
                stream.encode(residuals, self.width(), output)?;
            }
        }
        Ok(())
    }
}

impl UnchangedRuns {
    /// Whether they contain this element of the column.
    fn contain(&self, element: usize) -> bool {
        self.runs.get(element / 128) == Some(&1)
    }

    /// Writes the map for a column of `n` elements.
    fn encode(&self, n: usize, output: &mut Output<'_>) -> Result<(), String> {
        output.head.push(1);
        varint(&mut output.head, (0..n).filter(|&i| self.contain(i)).count() as u64);
        self.map.write_head(&mut output.head, 1);
        let runs: Vec<u64> = self.runs.iter().map(|&run| u64::from(run)).collect();
        self.map.encode(&runs.chunks(128).collect::<Vec<_>>(), 8, output)
    }
}

/// The residual of an element of `w` bits.
fn residual(predictor: u8, u: u64, p: u64, w: u32) -> u64 {
    let mask = u64::MAX >> (64 - w);
    // A small distance, up or down, as a small number.
    let zigzag = |d: u64| (d << 1 ^ if d >> (w - 1) & 1 == 1 { u64::MAX } else { 0 }) & mask;
    match predictor {
        1 => zigzag(ord(u, w).wrapping_sub(ord(p, w)) & mask),
        _ => zigzag(u.wrapping_sub(p) & mask),
    }
}

impl Named {
    /// The first of them and their number.
    pub fn of(first: u64, count: u64) -> Self {
        Self { first, count }
    }

    fn write(self, head: &mut Vec<u8>) {
        varint(head, self.first);
        varint(head, self.count);
    }

    /// Their bytes as `n` elements of `width` bytes.
    fn elements(self, dependencies: &[Dependency], width: usize, n: usize) -> Result<Vec<u64>, String> {
        let bytes: Vec<u8> = dependencies
            .iter()
            .skip(self.first as usize)
            .take(self.count as usize)
            .flat_map(|dependency| dependency.bytes.clone())
            .collect();
        if bytes.len() != n * width {
            return Err("the dependencies of a column do not have its number of elements".into());
        }
        Ok(elements(&bytes, width))
    }
}
