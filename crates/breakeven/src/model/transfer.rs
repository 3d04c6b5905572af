//! Compressing while writing over a link: Hirsch's effective speed and write calls.
//!
//! Sending data compressed by a factor `f` over a link of speed `s` moves the data at an effective speed `s f`, while
//! the codec keeps up. Compressing fills the time in which the application waits anyway. So its cost depends on the
//! strategy and on asynchronism, the part of the write call in which the application computes. The strategies speed the
//! call up (S1), keep its duration (S2), or prolong it for a better ratio (S3).
//!
//! Each formula is the thesis's. Its rough constants are kept and named: asynchronous computation takes twice as long
//! beside compression. The compression factor is the ratio, `raw_bytes / stored_bytes`.
//!
//! Source: Hirsch 2017, sections 2.2.4, 3.2.5, 3.5 and 5.2.2. [`CodecSpeeds::pays_at_link`] is drawn from section
//! 3.2.2; the waits of a block are this project's.

use super::break_even::Outcome;
use crate::units::{BytesPerSecond, Euros, Joules, Seconds, Watts};

const JOULES_PER_KWH: f64 = 3.6e6;

/// The speeds and ratio of a codec on data in transfer, all its threads together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CodecSpeeds {
    /// Raw bytes compressed per second; infinite where compressing is free.
    pub compress: BytesPerSecond,
    /// Raw bytes decompressed per second; infinite where nobody waits for it.
    pub decompress: BytesPerSecond,
    /// The ratio, raw over stored bytes (the thesis's compression factor).
    pub ratio: f64,
}

/// A block of a transfer: the slowest stage waits for it in the stages before and behind.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct OneBlock {
    /// Its share of the bytes; 0 for a transfer that is long against it.
    pub share: f64,
    /// Seconds of one thread to compress it, for each raw byte.
    pub compress_seconds_per_byte: f64,
    /// The same for decompressing it.
    pub decompress_seconds_per_byte: f64,
}

impl CodecSpeeds {
    /// Returns the effective speed of a link: s_effective = s_medium f_compression.
    ///
    /// Source: Hirsch 2017, equation 2.1.
    pub fn effective(&self, link: BytesPerSecond) -> BytesPerSecond {
        self.check();
        link * self.ratio
    }

    /// Returns the speed of raw bytes through the pipeline of compressing, sending and decompressing: the least of the
    /// three.
    ///
    /// Source: Hirsch 2017, equation 2.2; with an infinite decompression, equations 3.1 and 3.2.
    pub fn transfer(&self, link: BytesPerSecond) -> BytesPerSecond {
        let effective = self.effective(link);
        BytesPerSecond(effective.0.min(self.compress.0).min(self.decompress.0))
    }

    /// Returns the time for `raw_bytes` through all three stages. It is the time of the slowest stage, and of one block
    /// in the others, which begin and end the transfer.
    ///
    /// Source: this project's; if a block is a negligible share of the bytes, it is Hirsch 2017, equation 2.2.
    ///
    /// # Panics
    /// When a speed or the ratio is not above 0, or the bytes are negative.
    pub fn transfer_time(&self, raw_bytes: f64, link: BytesPerSecond, one: OneBlock) -> Seconds {
        assert!(
            raw_bytes >= 0.0 && link.0 > 0.0,
            "{raw_bytes} bytes, {link}"
        );
        let sent = self.effective(link).time_for(1.0).0;
        let [encode, decode] = [
            one.compress_seconds_per_byte,
            one.decompress_seconds_per_byte,
        ];
        let by_stage = [
            1.0 / self.compress.0 + one.share * (sent + decode),
            sent + one.share * (encode + decode),
            1.0 / self.decompress.0 + one.share * (encode + sent),
        ];
        Seconds(raw_bytes * by_stage.into_iter().fold(0.0, f64::max))
    }

    /// Returns the link speeds, in bytes per second, at which compressing shortens the transfer. It pays below a speed
    /// or never. The data must shrink by more than the delay of blocks, and both codec directions must keep up with the
    /// link.
    ///
    /// Source: Hirsch 2017, section 3.2.2; the delay is this project's.
    ///
    /// # Panics
    /// When a speed or the ratio is not above 0.
    pub fn pays_at_link(&self, one: OneBlock) -> Outcome {
        self.check();
        if self.ratio <= 1.0 {
            return Outcome::Never;
        }
        let [encode, decode] = [
            one.compress_seconds_per_byte,
            one.decompress_seconds_per_byte,
        ];
        let moved = 1.0 - one.share / self.ratio;
        let limits = [
            moved / (1.0 / self.compress.0 + one.share * decode),
            (1.0 - 1.0 / self.ratio) / (one.share * (encode + decode)),
            moved / (1.0 / self.decompress.0 + one.share * encode),
        ];
        let limit = limits.into_iter().fold(f64::INFINITY, f64::min);
        if limit.is_finite() {
            Outcome::Below(limit)
        } else {
            Outcome::Always
        }
    }

    fn check(&self) {
        assert!(
            self.compress.0 > 0.0 && self.decompress.0 > 0.0 && self.ratio > 0.0,
            "codec speeds and ratio must be above 0: {self:?}"
        );
        assert!(self.ratio.is_finite(), "an infinite ratio: {self:?}");
    }
}

/// The aim of compression during a write call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Strategy {
    /// S1: the fastest transfer; compression keeps pace with the effective speed.
    SpeedUp,
    /// S2: the best ratio that does not prolong the call; compression keeps pace with the link.
    Maintain,
    /// S3: a better ratio for a call longer by this factor, at least 1.
    Prolong(f64),
}

impl Strategy {
    /// Returns the target speed of compression.
    ///
    /// Source: Hirsch 2017, section 3.2.5: the link's share for S3 is 1 / (duration factor).
    ///
    /// # Panics
    /// When the ratio or a prolonging factor is out of range.
    pub fn target(&self, link: BytesPerSecond, ratio: f64) -> BytesPerSecond {
        match *self {
            Strategy::SpeedUp => {
                assert!(ratio > 0.0, "a ratio of {ratio}");
                link * ratio
            }
            Strategy::Maintain => link,
            Strategy::Prolong(factor) => {
                check_prolonging(factor);
                link / factor
            }
        }
    }

    /// Returns the compression time of this strategy, if the strategy before it took `time` and reached `ratio`. S1 is
    /// first and has its own time. S2 undoes the speed-up that S1 gained, time f. S3 has the prolonging factor on top
    /// of S2.
    ///
    /// Source: Hirsch 2017, section 5.2.2, the columns "S2 time" and "S3 time" of Table 5.1. All
    /// 22 rows follow from the printed time and the printed factor, rounded half up to 1 ms.
    pub fn time_after(&self, time: Seconds, ratio: f64) -> Seconds {
        match *self {
            Strategy::SpeedUp => time,
            Strategy::Maintain => {
                assert!(ratio > 0.0, "a ratio of {ratio}");
                time * ratio
            }
            Strategy::Prolong(factor) => {
                check_prolonging(factor);
                time * factor
            }
        }
    }
}

/// A write call of an application over a link, without compression.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WriteCall {
    /// Raw bytes written.
    pub raw_bytes: f64,
    /// Speed of the link.
    pub link: BytesPerSecond,
    /// Share of the call during which the application computes, 0 (synchronous) to 1.
    pub asynchronism: f64,
}

/// The power of a machine while it compresses and while it waits, and the price of its energy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ComputePrices {
    /// Power while compressing.
    pub busy: Watts,
    /// Power while idle, which the application pays for anyway.
    pub idle: Watts,
    /// Price of energy in EUR per kWh.
    pub eur_per_kwh: f64,
    /// Price of the whole machine for an hour, energy, maintenance and investment, in EUR.
    pub machine_eur_per_hour: f64,
}

impl ComputePrices {
    /// Returns the cost of compressing while the machine would idle: C = T (p_c - p_idle) E.
    ///
    /// Source: Hirsch 2017, equation 3.5.
    pub fn above_idle(&self, time: Seconds) -> Euros {
        let energy: Joules = (self.busy - self.idle) * time;
        Euros(energy.0 / JOULES_PER_KWH * self.eur_per_kwh)
    }

    /// Returns the cost of using the whole machine alone.
    pub fn machine(&self, time: Seconds) -> Euros {
        Euros(time.0 / 3600.0 * self.machine_eur_per_hour)
    }
}

impl WriteCall {
    /// Returns the duration of the call without compression.
    ///
    /// # Panics
    /// When bytes, link or asynchronism are out of range.
    pub fn duration(&self) -> Seconds {
        self.check();
        self.link.time_for(self.raw_bytes)
    }

    /// Returns the factor by which S1 speeds the call up; below 1 it slows it down. An asynchronous
    /// computation takes twice its time beside compression and can become the limit.
    ///
    /// Source: Hirsch 2017, equation 3.3.
    pub fn speedup(&self, codec: &CodecSpeeds) -> f64 {
        self.check();
        codec.check();
        let codec_limit = codec.compress / self.link;
        let computing_limit = 1.0 / (2.0 * self.asynchronism);
        codec.ratio.min(codec_limit).min(computing_limit)
    }

    /// Returns the processor time S1 has for compression:
    /// T = D / (s f_speedup) (1 - f_asynchronism f_speedup).
    ///
    /// Source: Hirsch 2017, equation 3.4.
    ///
    /// # Panics
    /// When `speedup` is not above 0.
    pub fn speedup_compression_time(&self, speedup: f64) -> Seconds {
        assert!(speedup > 0.0, "a speed-up by {speedup}");
        self.duration() / speedup * (1.0 - self.asynchronism * speedup)
    }

    /// Returns the cost of S1's compression: only energy above idle, over the time of equation 3.4.
    ///
    /// Source: Hirsch 2017, equations 3.4 and 3.5.
    pub fn speedup_cost(&self, speedup: f64, prices: &ComputePrices) -> Euros {
        prices.above_idle(self.speedup_compression_time(speedup))
    }

    /// Returns the real prolonging factor of a call for a requested `prolonging` (1 for S2). A slow codec and the
    /// asynchronous computation may prolong it further.
    ///
    /// Source: Hirsch 2017, equation 3.6.
    ///
    /// # Panics
    /// When the prolonging factor is below 1.
    pub fn prolonging(&self, prolonging: f64, compress: BytesPerSecond) -> f64 {
        self.check();
        check_prolonging(prolonging);
        let codec_limit = self.link / compress;
        let computing_limit = prolonging / 2.0 + self.asynchronism;
        prolonging.max(codec_limit).max(computing_limit)
    }

    /// Returns the processor time within the original call: t = D / s (1 - f_asynchronism).
    ///
    /// Source: Hirsch 2017, equation 3.7.
    pub fn original_compression_time(&self) -> Seconds {
        self.duration() * (1.0 - self.asynchronism)
    }

    /// Returns the processor time beyond the original call: t = D / s (f_prolonging - 1).
    ///
    /// Source: Hirsch 2017, equation 3.8.
    ///
    /// # Panics
    /// When the prolonging factor is below 1.
    pub fn additional_compression_time(&self, prolonging: f64) -> Seconds {
        check_prolonging(prolonging);
        self.duration() * (prolonging - 1.0)
    }

    /// Returns the cost of S2 (`prolonging` 1) or S3. It is energy above idle while the application waits anyway, and
    /// the whole machine while it waits for compression alone.
    ///
    /// Source: Hirsch 2017, equation 3.9.
    pub fn prolonged_cost(&self, prolonging: f64, prices: &ComputePrices) -> Euros {
        prices.above_idle(self.original_compression_time())
            + prices.machine(self.additional_compression_time(prolonging))
    }

    fn check(&self) {
        assert!(
            self.raw_bytes >= 0.0 && self.link.0 > 0.0 && (0.0..=1.0).contains(&self.asynchronism),
            "no such write call: {self:?}"
        );
    }
}

fn check_prolonging(factor: f64) {
    assert!(
        factor >= 1.0 && factor.is_finite(),
        "a call prolonged by a factor of {factor}"
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{assert_close, seeded};

    fn mb(rate: f64) -> BytesPerSecond {
        BytesPerSecond::from_mb_per_second(rate)
    }

    fn codec(compress: f64, decompress: f64, ratio: f64) -> CodecSpeeds {
        CodecSpeeds {
            compress: mb(compress),
            decompress: mb(decompress),
            ratio,
        }
    }

    #[test]
    fn effective_speed_is_the_least_of_three() {
        // Section 2.2.4: a factor of 2 doubles the rate, 1.2 adds 20 %.
        assert_eq!(codec(1e9, 1e9, 2.0).effective(mb(100.0)), mb(200.0));
        assert_close(
            "1.2",
            codec(1e9, 1e9, 1.2).effective(mb(100.0)).0,
            120e6,
            1e-12,
        );
        let check = |compress, decompress, expected| {
            assert_eq!(
                codec(compress, decompress, 3.0).transfer(mb(100.0)),
                mb(expected)
            );
        };
        check(1000.0, 1000.0, 300.0);
        check(250.0, 1000.0, 250.0);
        check(1000.0, 200.0, 200.0);
        check(f64::INFINITY, f64::INFINITY, 300.0);
    }

    #[test]
    fn a_link_is_paid_for_below_a_speed() {
        let long = OneBlock::default();
        assert_eq!(
            codec(400.0, 900.0, 2.5).pays_at_link(long),
            Outcome::Below(400e6)
        );
        // When all is sent, a tenth of the bytes is still to be decompressed, by 2 ns a byte: (1 - 0.1 / 2.5) / (1 /
        // 400 MB/s + 0.2 ns).
        let one = OneBlock {
            share: 0.1,
            compress_seconds_per_byte: 5e-9,
            decompress_seconds_per_byte: 2e-9,
        };
        let Outcome::Below(short) = codec(400.0, 900.0, 2.5).pays_at_link(one) else {
            panic!("a codec of finite speed pays below some link speed");
        };
        assert_close("a short transfer", short, 0.96 / 2.7e-9, 1e-12);
        assert_eq!(codec(400.0, 900.0, 0.99).pays_at_link(long), Outcome::Never);
        let free = codec(f64::INFINITY, f64::INFINITY, 1.01);
        assert_eq!(free.pays_at_link(long), Outcome::Always);
    }

    #[test]
    fn link_break_evens_agree_with_transfer_times() {
        let mut random = seeded("link_break_evens");
        for round in 0..10_000 {
            let any = |random: &mut fastrand::Rng| 10.0 + random.f64() * 3000.0;
            let codec = codec(
                any(&mut random),
                any(&mut random),
                1.001 + random.f64() * 5.0,
            );
            let one = match round % 2 {
                0 => OneBlock::default(),
                _ => OneBlock {
                    share: random.f64(),
                    compress_seconds_per_byte: 1e-9 + random.f64() * 1e-7,
                    decompress_seconds_per_byte: random.f64() * 1e-8,
                },
            };
            let Outcome::Below(limit) = codec.pays_at_link(one) else {
                panic!("{codec:?}");
            };
            let gain = |link: f64| {
                let link = BytesPerSecond(link);
                link.time_for(1e9).0 - codec.transfer_time(1e9, link, one).0
            };
            assert!(gain(limit * 0.999) > 0.0, "{codec:?} {one:?}");
            assert!(gain(limit * 1.001) < 0.0, "{codec:?} {one:?}");
            assert!(gain(limit).abs() < 1e-9 * 1e9 / limit);
            let link = mb(any(&mut random));
            let time = codec.transfer_time(1e9, link, OneBlock::default()).0;
            let rate = codec.transfer(link);
            assert_close("pipeline", time, rate.time_for(1e9).0, 1e-12);
        }
    }

    #[test]
    fn targets_of_the_three_strategies() {
        // Section 3.2.5: prolonging by 25 % means 80 % of the link; section 5.3.1: 117 becomes 78.
        let check = |strategy: Strategy, expected: f64| {
            let found = strategy.target(mb(117.0), 3.22);
            assert_close("target", found.mb_per_second(), expected, 1e-12);
        };
        check(Strategy::SpeedUp, 117.0 * 3.22);
        check(Strategy::Maintain, 117.0);
        check(Strategy::Prolong(1.5), 78.0);
        check(Strategy::Prolong(1.25), 117.0 * 0.8);
    }

    fn call(asynchronism: f64) -> WriteCall {
        WriteCall {
            raw_bytes: 1e9,
            link: mb(100.0),
            asynchronism,
        }
    }

    #[test]
    fn speedup_is_limited_by_ratio_codec_and_computation() {
        // Section 3.5.1: twice the compression speed limits to 2; 50 % asynchronism prevents any.
        let check = |asynchronism, compress, ratio, expected| {
            let codec = codec(compress, f64::INFINITY, ratio);
            assert_close(
                "speedup",
                call(asynchronism).speedup(&codec),
                expected,
                1e-12,
            );
        };
        check(0.0, 1000.0, 2.5, 2.5);
        check(0.0, 200.0, 2.5, 2.0);
        check(0.5, 1000.0, 2.5, 1.0);
        check(0.25, 1000.0, 2.5, 2.0);
        check(1.0, 1000.0, 2.5, 0.5);
        check(0.0, 50.0, 2.5, 0.5);
    }

    #[test]
    fn prolonging_is_exceeded_by_a_slow_codec_or_much_computation() {
        // Section 3.5.2: all asynchronous, with 1.5 requested, gives 1.75.
        let check = |asynchronism, prolonging, compress, expected| {
            let found = call(asynchronism).prolonging(prolonging, mb(compress));
            assert_close("prolonging", found, expected, 1e-12);
        };
        check(0.0, 1.5, 100.0, 1.5);
        check(1.0, 1.5, 100.0, 1.75);
        check(0.0, 1.5, 50.0, 2.0);
        check(0.5, 1.0, 100.0, 1.0);
        check(0.6, 1.0, 100.0, 1.1);
    }

    fn prices() -> ComputePrices {
        ComputePrices {
            busy: Watts(375.0),
            idle: Watts(93.75),
            eur_per_kwh: 0.14,
            machine_eur_per_hour: 0.4394,
        }
    }

    #[test]
    fn times_and_costs_of_a_write_call() {
        // 10 s of call. Equation 3.4: sped up twice, 30 % asynchronous: 5 s less the 3 s computed.
        assert_close("3.4", call(0.3).speedup_compression_time(2.0).0, 2.0, 1e-12);
        assert_close("3.7", call(0.3).original_compression_time().0, 7.0, 1e-12);
        assert_close(
            "3.8",
            call(0.3).additional_compression_time(1.5).0,
            5.0,
            1e-12,
        );
        let above_idle = 281.25 * 7.0 / 3.6e6 * 0.14;
        let machine = 5.0 / 3600.0 * 0.4394;
        let found = call(0.3).prolonged_cost(1.5, &prices());
        assert_close("3.9", found.0, above_idle + machine, 1e-12);
        assert_eq!(
            call(0.3).prolonged_cost(1.0, &prices()),
            prices().above_idle(Seconds(7.0))
        );
        let found = call(0.3).speedup_cost(2.0, &prices());
        assert_close("3.5", found.0, 281.25 * 2.0 / 3.6e6 * 0.14, 1e-12);
        // Section 3.4.1: 5 s at 300 W, 25 % cooling, above a quarter idle: 0.000055 EUR.
        assert_eq!(
            format!("{:.6}", prices().above_idle(Seconds(5.0)).0),
            "0.000055"
        );
    }

    /// Equations 3.4 and 3.7 agree without any speed-up or prolonging.
    #[test]
    fn maintaining_is_speeding_up_by_one() {
        for asynchronism in [0.0, 0.2, 0.5] {
            let call = call(asynchronism);
            assert_close(
                "times",
                call.speedup_compression_time(1.0).0,
                call.original_compression_time().0,
                1e-12,
            );
        }
    }

    /// Table 5.1, all rows: factor, saving in percent, and milliseconds of S1, S2 and S3.
    const TABLE_5_1: [(f64, f64, u32, u32, u32); 22] = [
        (2.87, 65.2, 97, 278, 146),
        (3.00, 66.7, 115, 345, 173),
        (3.12, 67.9, 266, 830, 399),
        (3.16, 68.4, 378, 1194, 567),
        (3.22, 68.9, 357, 1150, 536),
        (3.29, 69.6, 495, 1629, 743),
        (3.33, 70.0, 642, 2138, 963),
        (3.37, 70.3, 786, 2649, 1179),
        (3.38, 70.4, 934, 3157, 1401),
        (3.40, 70.6, 1109, 3771, 1664),
        (3.41, 70.7, 1168, 3983, 1752),
        (3.42, 70.8, 1455, 4976, 2183),
        (3.42, 70.8, 1467, 5017, 2201),
        (3.44, 70.9, 1956, 6729, 2934),
        (3.46, 71.1, 2613, 9041, 3920),
        (3.46, 71.1, 2703, 9352, 4055),
        (3.53, 71.7, 3601, 12712, 5402),
        (3.55, 71.8, 4112, 14598, 6168),
        (3.66, 72.7, 5281, 19328, 7922),
        (3.67, 72.8, 5901, 21657, 8852),
        (3.68, 72.8, 7653, 28163, 11480),
        (3.68, 72.8, 9760, 35917, 14640),
    ];

    #[test]
    fn every_row_of_table_5_1() {
        for (factor, percent, time_ms, maintained_ms, prolonged_ms) in TABLE_5_1 {
            let time = Seconds(f64::from(time_ms) / 1000.0);
            // Half up to the millisecond, as printed; a tiny offset keeps 145.5 from becoming 145.4999.
            let printed = |time: Seconds| (time.0 * 1000.0 + 0.5 + 1e-6).floor();
            let maintained = Strategy::Maintain.time_after(time, factor);
            let prolonged = Strategy::Prolong(1.5).time_after(time, factor);
            assert_eq!(
                printed(maintained),
                f64::from(maintained_ms),
                "S2 at {factor}"
            );
            assert_eq!(
                printed(prolonged),
                f64::from(prolonged_ms),
                "S3 at {factor}"
            );
            assert_eq!(Strategy::SpeedUp.time_after(time, factor), time);
            let saved = (1.0 - 1.0 / factor) * 100.0;
            assert!((saved - percent).abs() < 0.05, "{saved} at {factor}");
        }
    }

    /// Section 5.2.2: S1 at level 3 leaves S2 0.830 s, enough for level 8. S2 at level 3 leaves S3 0.399 s, enough for
    /// level 5.
    #[test]
    fn the_levels_the_text_draws_from_table_5_1() {
        let reached = |budget: Seconds| {
            let fits = |row: &(f64, f64, u32, u32, u32)| f64::from(row.2) / 1000.0 <= budget.0;
            TABLE_5_1.iter().rposition(fits).map(|index| index + 1)
        };
        let level_3 = Seconds(0.266);
        assert_eq!(
            reached(Strategy::Maintain.time_after(level_3, 3.12)),
            Some(8)
        );
        assert_eq!(
            reached(Strategy::Prolong(1.5).time_after(level_3, 3.12)),
            Some(5)
        );
    }
}
