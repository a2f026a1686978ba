/* The doorbell: a producer notifies only when somebody sleeps, and nobody sleeps beside a job that nobody announced.
 *
 *   producer   insert; try the shared lock; refused -> notify at commit; granted -> keep it to the commit
 *   worker     ask for the exclusive lock (a waiting request refuses new shared locks), claim, get it, claim, sleep
 *
 * With -DBROKEN the producer gives the shared lock back before its commit: the worker gets the bell, looks, sees nothing
 * and sleeps, and the job commits without a sound.
 */
#define PRODUCERS 2

byte shared_holders;
bool is_waiting;            /* the worker's request is in the lock's queue */
bool is_held;               /* the worker has the bell */
byte visible;               /* committed jobs in line */
byte claimed;
bool is_rung;               /* a notification has reached the worker's connection */

active [PRODUCERS] proctype producer() {
    bool is_shared = false;

    if
    :: atomic { (is_waiting || is_held) -> is_shared = false }
    :: atomic { (!is_waiting && !is_held) -> is_shared = true; shared_holders++ }
    fi;
#ifdef BROKEN
    if
    :: is_shared -> shared_holders--
    :: else
    fi;
    visible++;
    if
    :: is_shared -> skip
    :: else -> is_rung = true
    fi
#else
    /* the commit makes the job visible, then lets the lock go or sends the notification */
    visible++;
    if
    :: is_shared -> shared_holders--
    :: else -> is_rung = true
    fi
#endif
}

active proctype worker() {
idle:
    atomic { is_waiting = true }
    atomic { claimed = claimed + visible; visible = 0 }                          /* after asking */
    atomic { shared_holders == 0 -> is_waiting = false; is_held = true }         /* granted */
    atomic { claimed = claimed + visible; visible = 0 }                          /* when granted */
end:
    /* asleep: only a notification wakes it here; polling is left out on purpose */
    atomic { is_rung -> is_rung = false }
    atomic { claimed = claimed + visible; visible = 0 }
    goto end
}

ltl every_job_is_claimed { <> [] (claimed == PRODUCERS) }
