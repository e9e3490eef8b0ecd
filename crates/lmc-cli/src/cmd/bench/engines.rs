//! `lmc` and general-purpose codecs on a sample, for studies.

use std::rc::Rc;
use std::sync::Arc;

use lmc::{Base, Error, ErrorKind, Level, Result};
use lmc_inspect::{DifferenceEntropy, Engine, EngineDistance, Sample};
use lmc_kernels::isa::Isa;

use super::codec::room_for;
use super::contender::{Contender, Order};
use super::measure::Least;
use super::memory::Memcpy;
use super::planes::{Planes, Run, cover};
use super::{measure, peers};

/// The codecs with these names; `all` for all that are built in.
///
/// # Errors
/// `Usage` for unknown names.
pub(in crate::cmd) fn chosen(names: &[String]) -> Result<Vec<&str>> {
    if let Some(unknown) = names.iter().find(|n| *n != "all" && !peers::NAMES.contains(&&n[..])) {
        let known = peers::NAMES.join(", ");
        let why = match peers::is_left_out(unknown) {
            true => format!(
                "engine {unknown:?}: this lmc was built with zstd alone: use all, or some of {known}; or a program with the feature \
                 bench (cargo install --path crates/lmc-cli --features bench)"
            ),
            false => format!("unknown engine {unknown:?}: use all, or some of {known}"),
        };
        return Err(Error::new(ErrorKind::Usage, why));
    }
    let all = names.iter().any(|n| n == "all");
    Ok(if all { peers::NAMES.to_vec() } else { names.iter().map(String::as_str).collect() })
}

/// Fast codecs run several times, slow ones once.
const LEAST: Least = Least { seconds: 0.2, rounds: 1 };

/// Measures `lmc` and the codecs with these names (`all` for all of them) on a sample, each as it is and grouped by bytes, and if there is an earlier
/// checkpoint on the exclusive or with that, too. One thread; medians over [`LEAST`] rounds or more.
///
/// # Errors
/// `Usage` for unknown names; errors of codecs.
pub(in crate::cmd) fn engines(
    sample: &Sample,
    names: &[String],
    level: Level,
    progress: &mut dyn FnMut(&str),
) -> Result<Vec<Engine>> {
    let names = chosen(names)?;
    let len = sample.new.len();
    let planes = planes(sample);
    let expected = sample.old.as_deref().map(Rc::<[u8]>::from);
    let isa = Isa::detect()?;
    let mut contenders = vec![Contender::lmc(level, isa, 1, Some(sample.dtype))?];
    if let Some(old) = &sample.old {
        contenders.push(Contender::lmc_given(base(old)?, level, isa, 1, Some(sample.dtype))?);
    }
    for name in names {
        for xor in [false, true].into_iter().filter(|xor| !xor || expected.is_some()) {
            for order in [Order::AsIs, Order::Grouped] {
                let c = match order {
                    Order::AsIs => peers::contender(name)?,
                    Order::Grouped if planes.is_identity() => continue,
                    Order::Grouped => peers::contender(name)?.grouped(planes.clone()),
                };
                contenders.push(match &expected {
                    Some(expected) if xor => c.xored(expected.clone()),
                    _ => c,
                });
            }
        }
    }
    let mut memcpys = vec![Memcpy::new(1)?];
    measure::run(&sample.new, &mut contenders, &mut memcpys, LEAST, &mut |_, label| progress(label))?;
    let engine = |c: &Contender| Engine {
        name: name(c),
        order: c.order.name().to_owned(),
        given: c.given.name().to_owned(),
        raw_size: len as u64,
        size: c.size as u64,
        compress_of_memcpy: c.compress.speed(len).of_memcpy,
        decompress_of_memcpy: c.decompress.speed(len).of_memcpy,
    };
    Ok(contenders.iter().map(engine).collect())
}

/// The codec that is given exclusive ors over all distances, of those with these names: zstd 1, or the first one.
pub(in crate::cmd) fn of_distances(names: &[String]) -> Result<(&str, String)> {
    let names = chosen(names)?;
    let wanted = names.iter().find(|n| **n == "zstd-1").or(names.first());
    let wanted = *wanted.ok_or_else(|| Error::new(ErrorKind::Usage, "no engine is named"))?;
    Ok((wanted, name(&peers::contender(wanted)?)))
}

/// The sizes that a delta of a sample has: by `lmc`, by a codec on the exclusive or, and as entropy. `None` if nothing
/// came before.
pub(in crate::cmd) fn delta_sizes(sample: &Sample, codec: &str, level: Level) -> Result<Option<EngineDistance>> {
    let Some(old) = &sample.old else { return Ok(None) };
    let (new, isa) = (&sample.new[..], Isa::detect()?);
    let expected = Rc::<[u8]>::from(&old[..]);
    let mut packed = room_for(new.len());
    let mut size = |mut c: Contender| {
        packed.resize(packed.capacity(), 1);
        c.codec.compress(new, &mut packed).map(|()| packed.len() as u64)
    };
    let planes = planes(sample);
    Ok(Some(EngineDistance {
        deltas: 1,
        raw_size: new.len() as u64,
        lmc_size: size(Contender::lmc_given(base(old)?, level, isa, 1, Some(sample.dtype))?)?,
        entropy_size: DifferenceEntropy::new(sample.dtype).map(|mut e| {
            e.add(new, old);
            (e.bits() / 8.0).round() as u64
        }),
        xor_size: size(peers::contender(codec)?.xored(expected.clone()))?,
        xor_grouped_size: match planes.is_identity() {
            true => None,
            false => Some(size(peers::contender(codec)?.grouped(planes).xored(expected))?),
        },
        ..EngineDistance::default()
    }))
}

/// Bytes of no format as a base, hashed.
fn base(raw: &[u8]) -> Result<Rc<[Base<'static>]>> {
    let base = Base::new(Arc::new(raw.to_vec()))?;
    let hash = base.content_hash(1)?;
    Ok(Rc::new([base.with_hash(hash).optional()]))
}

/// How the bytes of a sample are grouped.
fn planes(sample: &Sample) -> Rc<Planes> {
    let len = sample.new.len();
    Rc::new(Planes::new(&cover(len, [Run { bytes: 0..len, width: sample.dtype.coding_width() }])))
}

/// Name and level.
fn name(c: &Contender) -> String {
    if c.level.is_empty() { c.name.to_owned() } else { format!("{} {}", c.name, c.level) }
}
