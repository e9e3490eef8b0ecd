//! `lmc` and general-purpose codecs on a sample, for studies.

use std::rc::Rc;

use lmc::{Error, ErrorKind, Isa, Level, Result};
use lmc_inspect::{Engine, Sample};

use super::contender::{Contender, Order};
use super::delta::Old;
use super::measure::Least;
use super::memory::Memcpy;
use super::planes::{Planes, Run, cover};
use super::{measure, peers};

/// The codecs with these names; `all` for all of them.
///
/// # Errors
/// `Usage` for unknown names.
pub(in crate::cmd) fn chosen(names: &[String]) -> Result<Vec<&str>> {
    if let Some(unknown) = names.iter().find(|n| *n != "all" && !peers::NAMES.contains(&&n[..])) {
        let known = peers::NAMES.join(", ");
        return Err(Error::new(ErrorKind::Usage, format!("unknown engine {unknown:?}: use all, or some of {known}")));
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
    let planes = Rc::new(Planes::new(&cover(len, [Run { bytes: 0..len, width: sample.dtype.coding_width() }])));
    let expected = sample.old.as_deref().map(Rc::<[u8]>::from);
    let isa = Isa::detect()?;
    let mut contenders = vec![Contender::lmc(level, isa, 1, Some(sample.dtype))?];
    if let Some(old) = &sample.old {
        contenders.push(Old::of_bytes(old.clone())?.lmc(level, isa, 1, Some(sample.dtype))?);
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
        name: if c.level.is_empty() { c.name.to_owned() } else { format!("{} {}", c.name, c.level) },
        order: c.order.name().to_owned(),
        given: c.given.name().to_owned(),
        raw_size: len as u64,
        size: c.size as u64,
        compress_of_memcpy: c.compress.speed(len).of_memcpy,
        decompress_of_memcpy: c.decompress.speed(len).of_memcpy,
    };
    Ok(contenders.iter().map(engine).collect())
}
