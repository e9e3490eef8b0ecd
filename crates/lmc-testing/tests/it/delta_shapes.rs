//! Deltas of every shape, sound and damaged: every decoder agrees with the reference, on any number of threads.

use lmc::{Base, Decompressor};
use lmc_kernels::isa::Isa;
use lmc_testing::decoders::{LIMIT, Way, options};
use lmc_testing::deltas;
use lmc_testing::input::{Input, Random};
use lmc_testing::reference::decode_with_bases;
use lmc_testing::targets::delta_vs_reference;

#[test]
fn every_decoder_agrees_with_the_reference() {
    let mut random = Random::new(11);
    for _ in 0..1000 {
        delta_vs_reference(&random.bytes(600));
    }
}

#[test]
fn threads_that_wait_for_a_damaged_block_do_not_wait_forever() {
    let mut random = Random::new(12);
    let (mut restored, mut refused) = (0, 0);
    let isa = Isa::detect().expect("LMC_ISA, if it is set, names an instruction set");
    let options = options(isa).with_threads(4);
    let mut decompressor = Decompressor::new(&options).expect("threads can be started");
    for case in 0..500 {
        let choices = random.bytes(600);
        let (delta, file, _) = deltas::damaged(&mut Input::new(&choices));
        let expected = decode_with_bases(&file, &delta.bases(), LIMIT).ok();
        let bases: Vec<Base<'_>> =
            delta.bases.iter().map(|base| Base::new(&base[..]).expect("memory can be read")).collect();
        for way in Way::OF_DELTAS {
            let decoded = way.decode_by(&file, &bases, &options, &mut decompressor);
            assert!(decoded.as_ref().ok() == expected.as_ref(), "case {case}, {way:?}: {:?}", decoded.map(|_| ()));
        }
        if expected.is_some() { restored += 1 } else { refused += 1 }
    }
    assert!(restored > 50 && refused > 50, "{restored} restored, {refused} refused");
}
