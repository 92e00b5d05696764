//! Regrouping splits stages into lanes, and joins them again, between blocks.

use crate::dataflow::frame::Frame;
use crate::dataflow::lane::Partitioning;
use crate::dataflow::pooled::input::Input;
use crate::dataflow::pooled::pool::Pool;
use crate::dataflow::pooled::stage::Stage;
use crate::error::RunError;
use crate::program::OperatorKind;
use crate::threads::choice::Choice;

impl Pool {
    /// Lets as many workers take part as `choice` has it. Splits stages that would keep the others waiting into lanes, and joins
    /// those that would not.
    ///
    /// Between blocks, when no batch is in flight.
    pub fn regroup(&mut self, frame: &mut Frame, choice: &Choice) -> Result<(), RunError> {
        let threads = choice.threads();
        let mut changed = self.threads != threads;
        self.threads = threads;
        // A trial is too short for other lanes to pay.
        if !choice.is_trial() {
            changed |= self.group(frame)?;
        }
        if changed {
            self.restart(frame);
        }
        let is_alone = self.workers.len() == 1 || threads == 1 && frame.lanes.iter().all(|lanes| lanes.count() == 1);
        self.is_direct = is_alone && self.strategies.is_default;
        Ok(())
    }

    /// Returns whether it has split or joined a stage. Then `restart` must follow.
    fn group(&mut self, frame: &mut Frame) -> Result<bool, RunError> {
        let threads = self.threads;
        let costs = self.estimates.all();
        let all: f64 = costs.iter().sum();
        let mut changed = false;
        for k in 0..self.stages.len() {
            let index = self.stages[k].operator;
            let share = costs[self.place_of_stage(k)] * threads as f64 / all.max(f64::MIN_POSITIVE);
            if frame.chain.operators[index].kind != OperatorKind::Partitioned {
                continue;
            }
            let lanes = &mut frame.lanes[k];
            if self.partitioning() == Partitioning::Range && lanes.keys() == 0 {
                // Where the keys lie is seen first.
                continue;
            }
            let count = self.grouping.lanes(lanes.count(), lanes.keys(), share, threads);
            if count == lanes.count() {
                continue;
            }
            self.split(k, count, frame)?;
            changed = true;
        }
        Ok(changed)
    }

    /// Gives stage `k` that many lanes; `restart` must follow.
    fn split(&mut self, k: usize, count: usize, frame: &mut Frame) -> Result<(), RunError> {
        let index = self.stages[k].operator;
        let partitioning = self.partitioning();
        frame.lanes[k].regroup(&frame.chain.operators[index], count, partitioning)?;
        for slot in &mut self.slots {
            slot.inputs[k] = Input::new(&frame.chain, index, count, self.workers.len());
        }
        Ok(())
    }

    /// How keys are dealt to lanes. A direct pool has one lane.
    fn partitioning(&self) -> Partitioning {
        if self.is_direct { Partitioning::Hash } else { self.strategies.partitioning }
    }

    /// Serial numbers start anew, with empty channels.
    fn restart(&mut self, frame: &Frame) {
        let window = self.window as usize;
        self.stages = (frame.lanes.iter().enumerate())
            .map(|(index, lanes)| Stage::new(&frame.chain, index, lanes.count(), self.threads, window, self.strategies))
            .collect();
        self.back = (self.strategies.reorder)(window);
        self.restart_source();
    }
}
